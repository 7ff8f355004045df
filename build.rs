//! Compiles the table of shader variants (`shaders/variants.rs`) and writes `OUT_DIR/kernels.rs`; passes
//! the commit to `--version`. Nothing else. Without the feature `vulkan` there are no shaders.
#![cfg_attr(
    feature = "vulkan",
    expect(clippy::print_stderr, reason = "how a build script talks to people")
)]

use std::path::Path;
use std::process::{Command, ExitCode};

#[cfg(feature = "vulkan")]
#[path = "shaders/variants.rs"]
pub mod variants;

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=build.rs");
    commit();
    #[cfg(feature = "vulkan")]
    if let Err(errors) = shaders::build() {
        eprintln!("{errors}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Sets `Q36_COMMIT` and `Q36_BUILD_DATE`. The date is the commit's (or `SOURCE_DATE_EPOCH`'s), so that
/// two builds of one commit are equal. Outside a git checkout both are `unknown`.
fn commit() {
    let git = |args: &[&str]| {
        let out =
            Command::new("git").args(args).output().ok().filter(|out| out.status.success())?;
        let text = String::from_utf8(out.stdout).ok()?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    let unknown = || "unknown".to_owned();
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let date = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|s| s.parse().ok()).map(utc_date);
    let date = date.or_else(|| git(&["show", "-s", "--format=%cs", "HEAD"]));
    let hash = git(&["rev-parse", "--short=12", "HEAD"]);
    println!("cargo:rustc-env=Q36_COMMIT={}", hash.unwrap_or_else(unknown));
    println!("cargo:rustc-env=Q36_BUILD_DATE={}", date.unwrap_or_else(unknown));
    // Naming a file that does not exist would make every build a rebuild.
    let reference = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(reference.as_deref()) {
        if let Some(path) = git(&["rev-parse", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo:rerun-if-changed={path}");
        }
    }
}

/// `YYYY-MM-DD` of a Unix time, by the usual days-to-civil arithmetic (years start in March).
fn utc_date(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400) + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{:02}", day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(feature = "vulkan")]
mod shaders {
    use super::variants::{PROBES, Probe, VARIANTS, Variant};
    use std::collections::BTreeMap;
    use std::fmt::Write as _;
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::{env, fs, io, thread};

    /// A change of how modules are compiled invalidates what was compiled before.
    const RECIPE: &str = "vulkan1.3 performance 1";

    /// One compilation: a variant or a probe.
    struct Job {
        name: &'static str,
        file: &'static str,
        defines: &'static [(&'static str, &'static str)],
    }

    impl From<&Variant> for Job {
        fn from(v: &Variant) -> Self {
            Self { name: v.name, file: v.file, defines: v.defines }
        }
    }

    impl From<&Probe> for Job {
        fn from(p: &Probe) -> Self {
            Self { name: p.name, file: p.file, defines: &[] }
        }
    }

    /// Compiles what changed, in parallel, and writes the table of modules.
    pub(super) fn build() -> Result<(), String> {
        let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
        let sources = Sources::read(&root.join("shaders")).map_err(|e| format!("shaders: {e}"))?;
        let probes: Vec<Job> = PROBES.iter().map(Job::from).collect();
        let probed = compile_all(&probes, &sources, &out);
        let bundled = env::var_os("CARGO_FEATURE_BUNDLED_SHADERC").is_some();
        let mut missing = Vec::new();
        for (probe, result) in PROBES.iter().zip(probed) {
            match result {
                Ok(()) => {}
                Err(e) if bundled && probe.required => return Err(e),
                Err(_) => {
                    println!("cargo:warning=this shader compiler lacks {}", probe.name);
                    missing.push(probe.name);
                }
            }
        }
        let wanted = VARIANTS.iter().filter(|v| v.needs.is_none_or(|n| !missing.contains(&n)));
        let jobs: Vec<Job> = wanted.map(Job::from).collect();
        let errors: Vec<String> =
            compile_all(&jobs, &sources, &out).into_iter().filter_map(Result::err).collect();
        if !errors.is_empty() {
            return Err(errors.join("\n"));
        }
        write_table(&jobs, &out).map_err(|e| format!("{}: {e}", out.display()))
    }

    /// Every file below `shaders/`, by its path from there. The includes are few and small; reading all
    /// of them keeps the include callback free of I/O.
    struct Sources(BTreeMap<String, String>);

    impl Sources {
        fn read(root: &Path) -> io::Result<Self> {
            let mut files = BTreeMap::new();
            let mut folders = vec![root.to_path_buf()];
            while let Some(folder) = folders.pop() {
                // A folder is named too, so that a new file in it is noticed.
                println!("cargo:rerun-if-changed={}", folder.display());
                for entry in fs::read_dir(&folder)? {
                    let path = entry?.path();
                    if path.is_dir() {
                        folders.push(path);
                        continue;
                    }
                    let name = path.strip_prefix(root).expect("found below root").to_string_lossy();
                    if matches!(path.extension().and_then(|e| e.to_str()), Some("comp" | "glsl")) {
                        println!("cargo:rerun-if-changed={}", path.display());
                        files.insert(name.replace('\\', "/"), fs::read_to_string(&path)?);
                    }
                }
            }
            println!("cargo:rerun-if-changed={}", root.join("variants.rs").display());
            Ok(Self(files))
        }

        fn get(&self, file: &str) -> Result<&str, String> {
            self.0.get(file).map(String::as_str).ok_or(format!("shaders/{file}: no such file"))
        }

        /// The text that a compilation of `file` sees: itself and its includes, each once.
        fn closure(&self, file: &str) -> Result<Vec<(&str, &str)>, String> {
            let (name, text) =
                self.0.get_key_value(file).ok_or(format!("shaders/{file}: no such file"))?;
            let mut found = vec![(name.as_str(), text.as_str())];
            let mut next = 0;
            while let Some(&(from, text)) = found.get(next) {
                next += 1;
                for (line, include) in includes(text) {
                    if found.iter().any(|(name, _)| *name == include) {
                        continue;
                    }
                    let Some((name, text)) = self.0.get_key_value(&include) else {
                        return Err(format!(
                            "shaders/{from}:{line}: error: no file shaders/{include}"
                        ));
                    };
                    found.push((name, text));
                }
            }
            Ok(found)
        }
    }

    /// The files named by `#include "…"` lines (paths from `shaders/include`), with line numbers.
    fn includes(text: &str) -> impl Iterator<Item = (usize, String)> {
        text.lines().enumerate().filter_map(|(i, line)| {
            let name = line.trim_start().strip_prefix("#include")?.trim().trim_matches('"');
            Some((i + 1, format!("include/{name}")))
        })
    }

    /// Runs the jobs on as many threads as cargo allows; results in order.
    fn compile_all(jobs: &[Job], sources: &Sources, out: &Path) -> Vec<Result<(), String>> {
        let threads = env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
        let next = AtomicUsize::new(0);
        let results = Mutex::new(BTreeMap::new());
        thread::scope(|scope| {
            for _ in 0..jobs.len().min(threads) {
                scope.spawn(|| {
                    while let Some((i, job)) = {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        jobs.get(i).map(|job| (i, job))
                    } {
                        let result = compile_if_changed(job, sources, out);
                        results.lock().expect("no thread panicked").insert(i, result);
                    }
                });
            }
        });
        results.into_inner().expect("no thread panicked").into_values().collect()
    }

    /// Compiles to `OUT_DIR/<name>.spv`, unless that was made from the same text before.
    fn compile_if_changed(job: &Job, sources: &Sources, out: &Path) -> Result<(), String> {
        let mut key = format!("{RECIPE} {:?} {:?}", shaderc::get_spirv_version(), job.defines);
        for (name, text) in sources.closure(job.file)? {
            let _ = write!(key, "\0{name}\0{text}");
        }
        let key = format!("{:032x}", fnv1a(key.as_bytes()));
        let module = out.join(format!("{}.spv", job.name));
        let stamp = out.join(format!("{}.key", job.name));
        if module.exists() && fs::read_to_string(&stamp).is_ok_and(|old| old == key) {
            return Ok(());
        }
        let words = compile(job, sources)?;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let written = fs::write(&module, bytes).and_then(|()| fs::write(&stamp, &key));
        written.map_err(|e| format!("{}: {e}", module.display()))
    }

    /// The one place that knows the compiler.
    fn compile(job: &Job, sources: &Sources) -> Result<Vec<u32>, String> {
        let fail = |e: shaderc::Error| format!("shader `{}` does not compile\n{e}", job.name);
        let compiler = shaderc::Compiler::new().map_err(fail)?;
        let mut options = shaderc::CompileOptions::new().map_err(fail)?;
        options.set_target_env(shaderc::TargetEnv::Vulkan, shaderc::EnvVersion::Vulkan1_3 as u32);
        options.set_optimization_level(shaderc::OptimizationLevel::Performance);
        options.set_warnings_as_errors();
        options.set_include_callback(|name, _, _, _| {
            let name = format!("include/{name}");
            let content = sources.get(&name)?.to_owned();
            Ok(shaderc::ResolvedInclude { resolved_name: format!("shaders/{name}"), content })
        });
        for (name, value) in job.defines {
            options.add_macro_definition(name, Some(value));
        }
        let text = sources.get(job.file)?;
        let name = format!("shaders/{}", job.file);
        let kind = shaderc::ShaderKind::Compute;
        let artifact =
            compiler.compile_into_spirv(text, kind, &name, "main", Some(&options)).map_err(fail)?;
        Ok(artifact.as_binary().to_vec())
    }

    /// `kernels.rs`: the modules, and a hash over all of them that names the pipeline cache.
    fn write_table(jobs: &[Job], out: &Path) -> io::Result<()> {
        let mut all = Vec::new();
        let mut table = String::new();
        for job in jobs {
            let path = out.join(format!("{}.spv", job.name));
            all.extend_from_slice(job.name.as_bytes());
            all.extend(fs::read(&path)?);
            let _ =
                writeln!(table, "    module!({:?}, {:?}),", job.name, path.display().to_string());
        }
        let hash = fnv1a(&all);
        let text = format!(
            "/// Hash of every embedded module.\npub const BUNDLE_HASH: &str = \"{hash:032x}\";\n\n\
             /// The embedded modules.\npub static MODULES: &[Module] = &[\n{table}];\n"
        );
        let path = out.join("kernels.rs");
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            return Ok(());
        }
        fs::write(path, text)
    }

    /// FNV-1a, 128 bits: tells versions of our own files apart, which needs no cryptography.
    fn fnv1a(bytes: &[u8]) -> u128 {
        bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, &byte| {
            (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
        })
    }
}
