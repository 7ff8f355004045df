//! The start-up line, and `--dry-run`: what would be opened and whether it fits (cli.md 14).

use anyhow::Result;
use serde::Serialize;

use crate::commands::machine::Machine;
use crate::commands::{Context, Exit};
use crate::engine::{BackendKind, Info};
use crate::model::memory::Plan;
use crate::util::units::Bytes;

/// What memory goes where, in one line.
pub(in crate::commands) fn line(info: &Info) -> String {
    let plan = &info.plan;
    format!(
        "{}: {} weights {}, context {} tokens ({}/{} rows {}, state {}), scratch {} for chunks of {}",
        info.backend.name(),
        Bytes(plan.weights),
        place(info),
        info.ctx_tokens,
        info.kv_k,
        info.kv_v,
        Bytes(plan.kv()),
        Bytes(plan.state()),
        Bytes(plan.scratch),
        info.chunk_tokens,
    )
}

/// Where the weights are.
fn place(info: &Info) -> &'static str {
    match info.backend {
        BackendKind::Cpu => "mapped",
        BackendKind::Vulkan => "on the device",
    }
}

/// The plan for programs.
#[derive(Serialize)]
struct Json<'a> {
    model: String,
    backend: &'static str,
    threads: usize,
    ctx_tokens: usize,
    chunk_tokens: usize,
    cache_type_k: &'static str,
    cache_type_v: &'static str,
    memory: &'a Plan,
    memory_beyond_weights: u64,
    memory_available: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<DeviceJson<'a>>,
    fits: bool,
}

/// The device's part of the plan.
#[derive(Serialize)]
struct DeviceJson<'a> {
    name: &'a str,
    needed: u64,
    usable: u64,
}

impl<'a> DeviceJson<'a> {
    fn new(info: &'a Info) -> Option<Self> {
        let (name, usable) = (info.device.as_deref()?, info.device_usable?.0);
        Some(Self { name, needed: info.plan.on_device(), usable })
    }
}

/// Prints resolved options and the plan. Success when it fits: a device has to hold everything; weights that the CPU
/// maps may be dropped and read again, so only what stands beside them must fit.
pub(super) fn dry_run(info: &Info, json: bool, context: &Context) -> Result<Exit> {
    let available = Machine::read("/".as_ref()).memory_available;
    let needed = Bytes(info.plan.beyond_weights());
    let fits = match info.device_usable {
        Some(usable) => info.plan.on_device() <= usable.0,
        None => available.is_none_or(|available| needed <= available),
    };
    if json {
        let object = Json {
            model: info.model.display().to_string(),
            backend: info.backend.name(),
            threads: info.threads,
            ctx_tokens: info.ctx_tokens,
            chunk_tokens: info.chunk_tokens,
            cache_type_k: info.kv_k.name(),
            cache_type_v: info.kv_v.name(),
            memory: &info.plan,
            memory_beyond_weights: needed.0,
            memory_available: available.map(|b| b.0),
            device: DeviceJson::new(info),
            fits,
        };
        context.printer.line(&serde_json::to_string(&object)?)?;
    } else {
        context.printer.line(&table(info, available, fits))?;
    }
    Ok(if fits { Exit::Success } else { Exit::Failure })
}

fn table(info: &Info, available: Option<Bytes>, fits: bool) -> String {
    let plan = &info.plan;
    let available = available.map_or_else(|| "unknown".to_owned(), |b| b.to_string());
    let mut rows = vec![
        ("model", info.model.display().to_string()),
        ("backend", format!("{}, {} threads", info.backend.name(), info.threads)),
        ("context", format!("{} tokens", info.ctx_tokens)),
        ("prefill chunk", format!("{} tokens", info.chunk_tokens)),
        ("weights", format!("{}, {}", Bytes(plan.weights), place(info))),
        ("K/V rows", format!("{} ({}/{})", Bytes(plan.kv()), info.kv_k, info.kv_v)),
        ("recurrent state", format!("{} in {} slots", Bytes(plan.state()), plan.slots)),
        ("logits and ids", Bytes(plan.logits() + plan.ids()).to_string()),
        ("vocabulary", Bytes(plan.vocabulary).to_string()),
        ("scratch", Bytes(plan.scratch).to_string()),
        ("beside the weights", Bytes(plan.beyond_weights()).to_string()),
        ("memory available", available),
    ];
    if let Some(device) = DeviceJson::new(info) {
        let (needed, usable) = (Bytes(device.needed), Bytes(device.usable));
        rows.push(("device", device.name.to_owned()));
        rows.push(("on the device", format!("{needed} of {usable}")));
    }
    rows.push(("fits", if fits { "yes" } else { "no" }.to_owned()));
    let line = |(name, value): &(&str, String)| format!("{name:<20}{value}");
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
