//! Where the model is when nobody says.

use std::path::{Path, PathBuf};

use crate::cli::environment::Environment;

/// The file that `download_model.sh q2-imatrix` fetches.
const PUBLISHED: &str = "gguf/Qwen3.6-35B-A3B-AntirezExperts-IQ2XXS-gateup-Q2K-down-Q8rest.gguf";
/// The link that the download keeps up to date.
const LINK: &str = "q36moe.gguf";

/// No model was named and none is in the usual places.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no model file found; tried {}\n\
     hint: ./download_model.sh q2-imatrix fetches the model, -m FILE names another",
    list(.tried)
)]
pub struct NoModel {
    /// The places, in order.
    pub tried: Vec<PathBuf>,
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The model file: `named` on the command line, else in the environment, else the first of the
/// usual places that is there. A named file is not checked here; opening it says what is wrong.
pub fn model(named: Option<&Path>, environment: &Environment) -> Result<PathBuf, NoModel> {
    search(named, environment, Path::is_file)
}

fn search(
    named: Option<&Path>,
    environment: &Environment,
    exists: impl Fn(&Path) -> bool,
) -> Result<PathBuf, NoModel> {
    if let Some(path) = named.or(environment.model.as_deref()) {
        return Ok(path.to_path_buf());
    }
    let below_data = environment.data_home.as_ref().map(|dir| dir.join("q36").join(PUBLISHED));
    let tried = [PUBLISHED.into(), LINK.into()].into_iter().chain(below_data).collect::<Vec<_>>();
    match tried.iter().find(|path| exists(path)) {
        Some(path) => Ok(path.clone()),
        None => Err(NoModel { tried }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(model: Option<&str>) -> Environment {
        Environment {
            model: model.map(PathBuf::from),
            data_home: Some("/data".into()),
            ..Environment::default()
        }
    }

    #[test]
    fn a_named_file_is_taken_as_it_is() {
        let nowhere = |_: &Path| false;
        let named = search(Some(Path::new("a")), &environment(Some("b")), nowhere);
        assert_eq!(named, Ok("a".into()));
        assert_eq!(search(None, &environment(Some("b")), nowhere), Ok("b".into()));
    }

    #[test]
    fn usual_places_are_tried_in_order() {
        let found = |places: &[&str]| {
            search(None, &environment(None), |p| places.iter().any(|q| p == Path::new(q)))
        };
        let in_data = Path::new("/data/q36").join(PUBLISHED);
        assert_eq!(found(&[LINK, PUBLISHED]), Ok(PUBLISHED.into()));
        assert_eq!(found(&[LINK]), Ok(LINK.into()));
        assert_eq!(found(&[in_data.to_str().unwrap()]), Ok(in_data.clone()));
        let err = found(&[]).unwrap_err();
        assert_eq!(err.tried, [Path::new(PUBLISHED), Path::new(LINK), &in_data]);
        assert!(err.to_string().contains(", q36moe.gguf, /data/q36/gguf/"), "{err}");
        assert!(err.to_string().contains("./download_model.sh q2-imatrix"), "{err}");
    }
}
