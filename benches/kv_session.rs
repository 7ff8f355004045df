//! What saving and loading a long session costs on this machine's Vulkan device: rates of both, and tokens per second
//! while a save is under way in the background.
//!
//! The model is one of the published shape with random weights, so no file is needed; a model file may be named instead:
//!
//! ```sh
//! cargo bench --bench kv_session -- 32768 40
//! ```
//!
//! The numbers are the tokens of the session and the layers of the model. Files go to the temporary folder (`TMPDIR`).
#![expect(clippy::print_stdout, reason = "this prints what it measures")]

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use q36::engine::{
    BackendChoice, Context, Engine as _, ModelEngine, Options, Prepared, SessionId, Unattended,
};
use q36::kv::{self, Config, Extras, Limits, Moment, Store};
use q36::tokenizer::TokenId;
use q36::util::rng::Rng;

/// Decode steps of a measurement without a save.
const STEPS: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().filter_map(|arg| arg.parse::<usize>().ok());
    let (tokens, layers) = (numbers.next().unwrap_or(2048), numbers.next().unwrap_or(4));
    let model = std::env::args().skip(1).find(|arg| Path::new(arg).is_file());
    let mut options = Options::new(model.as_deref().unwrap_or("random").into());
    options.backend = BackendChoice::Vulkan;
    options.context = Context::Forced(tokens + 8192);
    options.snapshots = 1;
    let prepared = match model {
        Some(_) => Prepared::new(options)?,
        None => Prepared::synthetic(options, layers)?,
    };
    let mut engine = prepared.open(&mut |_, _| true)?;
    println!("{}", engine.info().device.as_deref().unwrap_or("no device"));
    let mut rng = Rng::new(1);
    let rows = engine.info().vocab as u64;
    let mut draw = || TokenId(u32::try_from(rng.next_u64() % rows).expect("ids fit 32 bits"));
    let prompt: Vec<TokenId> = (0..tokens).map(|_| draw()).collect();
    let id = engine.open_session()?;
    let begin = Instant::now();
    engine.sync(id, &prompt, &mut Unattended)?;
    println!("prefill of {tokens} tokens: {:.2} s", begin.elapsed().as_secs_f64());

    let dir = tempfile::tempdir()?;
    let path = dir.path().join("session.kv");
    for round in 1..=3 {
        let begin = Instant::now();
        let bytes = kv::save_file(&mut engine, id, &path, &Extras::default(), 1)?;
        let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
        let saved = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        kv::load_file(&mut engine, id, &path)?;
        let loaded = begin.elapsed().as_secs_f64();
        println!(
            "round {round}: {bytes} bytes, saved and synced in {saved:.3} s ({:.2} GB/s), checked and loaded in \
             {loaded:.3} s ({:.2} GB/s)",
            rate(saved),
            rate(loaded)
        );
    }
    background(&mut engine, id, dir.path())?;
    Ok(())
}

/// Decode with and without a save under way.
fn background(engine: &mut ModelEngine, id: SessionId, dir: &Path) -> Result<(), Box<dyn Error>> {
    let limits = Limits { min_tokens: 1, ..Limits::default() };
    let config = Config { limits, ..Config::new(dir.join("store")) };
    let mut store = Store::open(config, engine)?;
    for round in 1..=3 {
        let quiet = decode(engine, id, |_, done| done < STEPS)?;
        store.save(engine, id, Moment::Continued, &Extras::default())?;
        let mut pumps = 0.0;
        let saving = decode(engine, id, |engine, _| {
            let begin = Instant::now();
            store.pump(engine);
            pumps += begin.elapsed().as_secs_f64();
            store.is_busy()
        })?;
        println!(
            "round {round}: {:.1} tokens/s, {:.1} during a save of {} steps ({:+.1} %, {:.0} us a step between them)",
            quiet.1,
            saving.1,
            saving.0,
            100.0 * (saving.1 / quiet.1 - 1.0),
            1e6 * pumps / saving.0 as f64
        );
    }
    println!("notes: {:?}", store.take_notes());
    Ok(())
}

/// Steps until `more` says no; how many, and how many a second.
fn decode(
    engine: &mut ModelEngine,
    id: SessionId,
    mut more: impl FnMut(&mut ModelEngine, usize) -> bool,
) -> Result<(usize, f64), Box<dyn Error>> {
    let (begin, mut done) = (Instant::now(), 0);
    loop {
        engine.decode(&[(id, TokenId(11))])?;
        done += 1;
        if !more(engine, done) {
            return Ok((done, done as f64 / begin.elapsed().as_secs_f64()));
        }
    }
}
