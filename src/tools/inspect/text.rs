//! The report as text for people.

use std::io::{self, Write};

use super::diff::Diff;
use super::report::{MtpFacts, Report, Row};
use super::verify::Verified;
use crate::gguf::printable;
use crate::util::units::{Bytes, grouped};

/// Writes a line for each fact, a table for each list.
pub(super) fn write(r: &Report, all_tensors: bool, out: &mut dyn Write) -> io::Result<()> {
    write_file(r, out)?;
    write_model(r, out)?;
    write_tokenizer(r, out)?;
    write_rows("storage types", &r.types, out)?;
    write_rows("groups", &r.groups, out)?;
    write_decode(r, out)?;
    write_memory(r, out)?;
    write_metadata(r, out)?;
    if all_tensors {
        write_tensors(r, out)?;
    }
    if let Some(verified) = &r.verify {
        write_verified(verified, out)?;
    }
    r.diff.as_ref().map_or(Ok(()), |diff| write_diff(diff, out))
}

fn title(text: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{text}")
}

fn fact(name: &str, value: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "  {name:<22}{value}")
}

/// `11,726,326,272 (10.92 GiB)`.
fn size(bytes: u64) -> String {
    format!("{} ({})", grouped(bytes), Bytes(bytes))
}

/// `34,660,610,688 (34.66 billion)`.
fn parameters(n: u64) -> String {
    let (unit, name) = if n < 1_000_000_000 { (1e6, "million") } else { (1e9, "billion") };
    format!("{} ({:.2} {name})", grouped(n), n as f64 / unit)
}

/// A text from the file, if there is one.
fn shown(text: Option<&String>) -> String {
    text.map_or_else(|| "not given".to_owned(), |s| printable(s.as_bytes()))
}

fn write_file(r: &Report, out: &mut dyn Write) -> io::Result<()> {
    let f = &r.file;
    writeln!(out, "{}", f.path)?;
    fact("name", &shown(f.name.as_ref()), out)?;
    fact("architecture", &shown(f.architecture.as_ref()), out)?;
    let format = format!("GGUF version {}, alignment {}", f.gguf_version, f.alignment);
    fact("format", &format, out)?;
    let counts = format!("{} keys, {} tensors", f.metadata_count, f.tensor_count);
    fact("holds", &counts, out)?;
    fact("file size", &size(f.bytes), out)?;
    fact("tensor bytes", &size(f.tensor_bytes), out)?;
    fact("parameters", &parameters(f.parameters), out)?;
    match &r.reason {
        None => fact("runs", "yes", out)?,
        Some(reason) => fact("runs", &format!("no: {}", reason.replace('\n', "\n      ")), out)?,
    }
    match &r.mtp {
        MtpFacts::Absent if r.runnable => fact("MTP", "not in this file", out),
        MtpFacts::Absent => Ok(()),
        MtpFacts::Complete => fact("MTP", "a complete support file, for `--mtp`", out),
        MtpFacts::Unusable(problem) => fact("MTP", &format!("unusable: {problem}"), out),
    }
}

fn write_model(r: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Some(m) = &r.model else { return Ok(()) };
    let s = &m.shape;
    title("model", out)?;
    let layers = format!(
        "{}: {} recurrent, {} with full attention (every {}th)",
        s.layers, m.recurrent_layers, m.attention_layers, s.full_interval
    );
    fact("layers", &layers, out)?;
    fact("hidden, vocabulary", &format!("{}, {}", s.hidden, grouped(s.vocab as u64)), out)?;
    fact("trained context", &grouped(s.context_length as u64), out)?;
    let attention = format!(
        "{} heads, {} K/V heads of {}, {} rotated, base {}",
        s.heads, s.kv_heads, s.head_dim, s.rope_dims, s.rope_base
    );
    fact("attention", &attention, out)?;
    let recurrent = format!(
        "{} value heads, {} key heads of {}, convolution of {} taps over {} channels",
        s.value_heads, s.key_heads, s.state_dim, s.conv_taps, s.conv_channels
    );
    fact("recurrent", &recurrent, out)?;
    let experts = format!(
        "{} of {} of width {}, and a shared one of {}",
        s.experts_used, s.experts, s.expert_ffn, s.shared_ffn
    );
    fact("experts", &experts, out)?;
    let [min, max] = m.expert_bytes;
    let range =
        if min == max { grouped(min) } else { format!("{} to {}", grouped(min), grouped(max)) };
    fact("one expert", &format!("{range} bytes, {} bits by layer 0", m.expert_bits), out)?;
    fact("active parameters", &parameters(m.active_parameters), out)?;
    fact("fingerprint", &m.fingerprint, out)
}

fn write_tokenizer(r: &Report, out: &mut dyn Write) -> io::Result<()> {
    if r.tokenizer.is_none() && r.template.is_none() {
        return Ok(());
    }
    title("tokenizer", out)?;
    if let Some(t) = &r.tokenizer {
        let names = format!("{}, {}", shown(t.model.as_ref()), shown(t.pre.as_ref()));
        fact("model, splitting", &names, out)?;
        let kinds: Vec<_> = t.kinds.iter().map(|(k, n)| format!("{} {k}", grouped(*n))).collect();
        fact("tokens", &format!("{}: {}", grouped(t.tokens), kinds.join(", ")), out)?;
        fact("merges", &grouped(t.merges), out)?;
        for special in &t.special {
            let text = shown(special.text.as_ref());
            fact(special.role, &format!("{} {text}", special.id), out)?;
        }
        if let Some(add) = t.add_bos {
            fact("prepends bos", if add { "yes" } else { "no" }, out)?;
        }
    }
    r.template.as_ref().map_or(Ok(()), |t| {
        fact("chat template", &format!("{} bytes, sha256 {}", t.bytes, t.sha256), out)
    })
}

fn write_rows(name: &str, rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{name:<20}{:>8}{:>19}{:>19}", "tensors", "parameters", "bytes")?;
    let line = |name: &str, tensors, parameters, bytes, out: &mut dyn Write| {
        let (parameters, readable) = (grouped(parameters), Bytes(bytes).to_string());
        let bytes = grouped(bytes);
        writeln!(out, "  {name:<18}{tensors:>8}{parameters:>19}{bytes:>19}{readable:>12}")
    };
    for row in rows {
        line(row.name, row.tensors, row.parameters, row.bytes, out)?;
    }
    let sum = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
    line("sum", sum(|r| r.tensors), sum(|r| r.parameters), sum(|r| r.bytes), out)
}

/// A name, bytes, and the bytes again as people read them.
fn amount(name: &str, bytes: u64, out: &mut dyn Write) -> io::Result<()> {
    let readable = Bytes(bytes).to_string();
    writeln!(out, "  {name:<38}{:>19}{readable:>12}", grouped(bytes))
}

fn write_decode(r: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Some(d) = &r.decode else { return Ok(()) };
    title("bytes for each decoded token", out)?;
    for share in &d.weights_by_group {
        amount(share.name, share.bytes, out)?;
    }
    amount("weights, sum", d.weights, out)?;
    amount("recurrent state, read and written", d.state, out)?;
    amount(&format!("K and V at {} tokens", grouped(d.ctx as u64)), d.kv_at_ctx, out)
}

fn write_memory(r: &Report, out: &mut dyn Write) -> io::Result<()> {
    let Some(m) = &r.memory else { return Ok(()) };
    let p = &m.plan;
    let sessions = if p.sessions == 1 { "session" } else { "sessions" };
    let ctx = grouped(m.ctx as u64);
    let head =
        format!("memory: {ctx} tokens, {}/{} K/V, {} {sessions}", m.kv_k, m.kv_v, p.sessions);
    title(&head, out)?;
    amount("weights, mapped", p.weights, out)?;
    amount("K and V rows", p.kv(), out)?;
    amount(&format!("recurrent state, {} slots", p.slots), p.state(), out)?;
    amount("logits", p.logits(), out)?;
    amount("token ids", p.ids(), out)?;
    amount("vocabulary", p.vocabulary, out)?;
    amount("scratch", p.scratch, out)?;
    amount("sum without weights", m.beyond_weights, out)?;
    amount("sum", m.total, out)?;
    amount("each further session", m.per_session, out)
}

fn write_metadata(r: &Report, out: &mut dyn Write) -> io::Result<()> {
    title("metadata", out)?;
    let width = r.metadata.iter().map(|k| k.key.len()).max().unwrap_or(0).min(52);
    for k in &r.metadata {
        writeln!(out, "  {:<width$}  {:<7}{}", printable(k.key.as_bytes()), k.ty, k.text)?;
    }
    Ok(())
}

fn write_tensors(r: &Report, out: &mut dyn Write) -> io::Result<()> {
    title("tensors", out)?;
    let width = r.tensors.iter().map(|t| t.name.len()).max().unwrap_or(0).min(52);
    for t in &r.tensors {
        let dims: Vec<_> = t.dims.iter().map(u64::to_string).collect();
        let (bytes, dims) = (grouped(t.bytes), dims.join(" x "));
        let name = printable(t.name.as_bytes());
        writeln!(out, "  {name:<width$}  {:<8}{bytes:>14} at {:<14}{dims}", t.ty, t.offset)?;
    }
    Ok(())
}

fn write_verified(v: &Verified, out: &mut dyn Write) -> io::Result<()> {
    title("verified", out)?;
    let (bytes, values) = (size(v.bytes), grouped(v.values));
    fact("read", &format!("{bytes}, {values} floats and scales"), out)?;
    for l in &v.largest {
        fact(
            &format!("largest {}", l.ty),
            &format!("{} in {}", l.magnitude, printable(l.tensor.as_bytes())),
            out,
        )?;
    }
    for bad in &v.bad {
        let text = format!("{} not finite, first in row {}", grouped(bad.values), bad.first_row);
        fact("BAD", &format!("{}: {text}", printable(bad.tensor.as_bytes())), out)?;
    }
    let result = if v.is_clean() { "every value is finite" } else { "damaged" };
    fact("result", result, out)
}

fn write_diff(d: &Diff, out: &mut dyn Write) -> io::Result<()> {
    title(&format!("compared with {}", d.with), out)?;
    let side = |s: &Option<String>| s.clone().unwrap_or_else(|| "absent".into());
    for k in &d.metadata {
        fact(
            "key",
            &format!("{}: {} -> {}", printable(k.key.as_bytes()), side(&k.left), side(&k.right)),
            out,
        )?;
    }
    for t in &d.tensors {
        let rms = t.relative_rms.map_or(String::new(), |e| format!(", relative rms {e:.3e}"));
        let sides = format!("{} -> {}", side(&t.left), side(&t.right));
        fact("tensor", &format!("{}: {sides}{rms}", printable(t.name.as_bytes())), out)?;
    }
    let equal = format!("{} keys and {} tensors", d.equal_keys, d.equal_tensors);
    fact("equal", &equal, out)?;
    fact("result", if d.is_empty() { "no difference" } else { "different" }, out)
}
