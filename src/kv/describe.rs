//! What a file says of itself, for people: without a model, and for broken and foreign files as far as they go.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::container::Container;
use super::directory::{Directory, name_of};
use super::header::{Header, Reason};
use super::payload::Head;
use super::refusal::{Class, Refusal};
use super::section::Sections;

/// A file, described.
#[derive(Debug)]
pub struct Described {
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its header; none where it is not even that.
    pub header: Option<Header>,
    /// The model it is of, steering included; none without an integrity section.
    pub fingerprint: Option<[u8; 20]>,
    /// Head of its payload; none where it was stripped or is broken.
    pub head: Option<Head>,
    /// What stands behind the payload.
    pub sections: Sections,
    /// Sections that are broken, one line each.
    pub dropped: Vec<String>,
    /// The first bytes of its text.
    pub text: Vec<u8>,
    /// Why it cannot be loaded, if that can be seen without its model.
    pub problem: Option<Refusal>,
}

impl Described {
    /// Reads the two ends of a file, and up to `text_limit` bytes of its text.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn read(path: &Path, text_limit: usize) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut described = Self {
            path: path.to_path_buf(),
            bytes: file.metadata()?.len(),
            header: None,
            fingerprint: None,
            head: None,
            sections: Sections::default(),
            dropped: Vec::new(),
            text: Vec::new(),
            problem: None,
        };
        described.problem = described.fill(file, text_limit).err();
        Ok(described)
    }

    fn fill(&mut self, file: File, text_limit: usize) -> Result<(), Refusal> {
        // The header alone is worth showing, even when what follows is broken.
        let mut raw = [0; super::header::HEADER_BYTES];
        if std::os::unix::fs::FileExt::read_exact_at(&file, &mut raw, 0).is_ok() {
            self.header = Header::parse(&raw, u64::MAX).ok();
        }
        let mut file = Container::open(file)?;
        self.text = file.text(text_limit)?;
        self.head = file.head()?;
        self.fingerprint = Some(file.integrity()?.fingerprint);
        (self.sections, self.dropped) = file.sections()?;
        Ok(())
    }

    /// Reads all of the file and checks every sum in it. Returns sections that are broken, one line each.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn verify(&self) -> Result<Vec<String>, Refusal> {
        let opened = File::open(&self.path);
        let file = opened.map_err(|source| Refusal::Read { what: "the file", source })?;
        let mut file = Container::open(file)?;
        // Sessions that a user saved are not named after their text.
        let by_text = file.header().reason != Reason::AgentSession;
        let name = self.path.file_name().and_then(name_of).filter(|_| by_text);
        file.verify(name.as_ref())
    }

    /// The digits of its name, or the name where that is no digest.
    pub fn id(&self) -> String {
        let stem = self.path.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }
}

impl Refusal {
    /// In one word.
    pub fn kind(&self) -> &'static str {
        match self.class() {
            Class::Alien => "alien",
            Class::Foreign => "foreign",
            Class::Damaged => "damaged",
            Class::Unreadable => "unreadable",
        }
    }
}

impl Directory {
    /// The `.kv` files, whatever is in them, by name.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(self.path())? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "kv") && path.is_file() {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// Deletes some of its files, while no other process does. One that has gone already counts as deleted.
    ///
    /// # Errors
    /// The first that could not be deleted.
    pub fn delete(&self, files: &[PathBuf]) -> io::Result<()> {
        let _lock = self.lock()?;
        for file in files {
            match fs::remove_file(file) {
                Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(why),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}
