//! From a file of a directory to its entry in the index. Reads the two ends of the file, and its text only where the
//! file does not bring the text's key.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use super::container::Container;
use super::digest::{Chain, key_bytes};
use super::directory::Listed;
use super::header::{Extensions, HEADER_BYTES, Header, Reason};
use super::index::{Entry, Fit};
use super::payload::Head;
use super::refusal::Refusal;
use super::section::{KEYS, Sections};
use crate::engine::StateIo;
use crate::model::StateLayout;

/// Texts without a key in their file are read up to this length; longer ones are not found.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// What decides whether a file can be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelKey {
    /// The model, steering included.
    pub fingerprint: [u8; 20],
    /// Bits of its routed experts.
    pub quant_bits: u8,
    /// Dimensions and K/V types of its sessions.
    pub layout: StateLayout,
    /// Positions of a session.
    pub ctx: usize,
    /// Tokens of a prefill chunk; only told.
    pub chunk: usize,
}

impl ModelKey {
    /// That of an engine.
    pub fn of(engine: &dyn StateIo) -> Self {
        let info = engine.info();
        Self {
            fingerprint: engine.fingerprint(),
            quant_bits: info.quant_bits,
            layout: engine.state_layout().clone(),
            ctx: info.ctx_tokens,
            chunk: info.chunk_tokens,
        }
    }

    /// What a file is to a session of this model.
    pub(super) fn fit(&self, file: &mut Container<File>) -> Fit {
        let mut fits = || -> Result<Fit, Refusal> {
            file.check_model(&self.fingerprint)?;
            let head = file.head()?;
            match &head {
                None => return Ok(Fit::Stripped),
                Some(Head::Tokens { .. }) => {}
                Some(Head::State(head)) => head.check_layout(&self.layout)?,
            }
            Ok(Fit::Usable)
        };
        fits().unwrap_or_else(|refusal| Fit::Refused(refusal.class(), refusal.to_string()))
    }
}

/// Files that one thread reads while another would be started.
const FEW: usize = 256;
const MAX_THREADS: usize = 8;

/// Reads entries of files in a directory, of many on several threads: what takes the time is asking the system.
pub(super) fn read_all(dir: &Path, files: &[Listed], model: &ModelKey) -> Vec<Entry> {
    let read_some = |files: &[Listed]| -> Vec<Entry> {
        let one = |file: &Listed| read(&dir.join(&file.file_name), file.clone(), model);
        files.iter().filter_map(one).collect()
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let each = files.len().div_ceil(threads.min(MAX_THREADS)).max(FEW);
    let mut parts = files.chunks(each);
    let Some(first) = parts.next() else { return Vec::new() };
    std::thread::scope(|scope| {
        let others: Vec<_> = parts.map(|part| scope.spawn(|| read_some(part))).collect();
        let mut entries = read_some(first);
        for other in others {
            entries.extend(other.join().expect("reading a file never panics"));
        }
        entries
    })
}

/// Reads an entry. `None` for what is no KVC file, or has gone.
pub(super) fn read(path: &Path, listed: Listed, model: &ModelKey) -> Option<Entry> {
    let file = File::open(path).ok()?;
    let metadata = file.metadata().ok()?;
    let bytes = metadata.len();
    // Some file systems list other numbers than they tell of an open file; listings are what is compared.
    let inode = if listed.inode == 0 { metadata.ino() } else { listed.inode };
    let mut head = [0; HEADER_BYTES];
    file.read_exact_at(&mut head, 0).ok()?;
    let header = Header::parse(&head, u64::MAX).ok()?;
    let Listed { name, file_name, .. } = listed;
    let entry = |fit, key, tool_ids| {
        Some(Entry { name, file_name, header, bytes, inode, fit, key, tool_ids })
    };
    let mut file = match Container::open(file) {
        Ok(file) => file,
        // It takes room all the same, so it has to be known.
        Err(why) => {
            let fit = Fit::Refused(why.class(), why.to_string());
            return entry(fit, Vec::new(), Vec::new());
        }
    };
    let mut fit = model.fit(&mut file);
    let (mut key, mut tool_ids) = (Vec::new(), Vec::new());
    if fit == Fit::Usable {
        match text_key(&mut file) {
            Ok((found, sections)) => {
                key = found;
                tool_ids = sections.tools.into_iter().map(|tool| tool.id).collect();
            }
            Err(refusal) => fit = Fit::Refused(refusal.class(), refusal.to_string()),
        }
    }
    entry(fit, key, tool_ids)
}

/// The key of the text, and the sections.
fn text_key(file: &mut Container<File>) -> Result<(Vec<u8>, Sections), Refusal> {
    let header = *file.header();
    let text_bytes = header.text_bytes as usize;
    let sections = match header.extensions.0 & !Extensions::INTEGRITY.0 {
        0 => Sections::default(),
        _ => file.sections()?.0,
    };
    // Found by another name than that of its text: never by a prompt.
    if header.reason == Reason::AgentSession {
        return Ok((Vec::new(), sections));
    }
    let stored = sections.tag(KEYS).filter(|key| key.len() == key_bytes(text_bytes));
    if let Some(key) = stored {
        return Ok((key.to_vec(), sections));
    }
    if text_bytes > MAX_TEXT_BYTES {
        return Err(Refusal::broken("the text", format!("{text_bytes} bytes without a key")));
    }
    let text = file.text(text_bytes)?;
    Ok((Chain::new(&text).key().to_vec(), sections))
}
