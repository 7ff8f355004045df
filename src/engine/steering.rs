//! Reading the direction file of steering (model.md 4). What its bytes mean is [`Steering`]'s.

use super::options::SteeringChoice;
use super::{Error, SteeringProblem};
use crate::model::Shape;
use crate::ops::Steering;

/// What tells a steered model from others: the bytes of the direction file and its scales. Nothing where nothing is
/// steered.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn identity(choice: Option<&SteeringChoice>) -> Result<Vec<Vec<u8>>, Error> {
    let Some(choice) = choice.filter(|c| c.attention != 0.0 || c.ffn != 0.0) else {
        return Ok(Vec::new());
    };
    let failed =
        |e| Error::Steering { path: choice.file.clone(), problem: SteeringProblem::Unreadable(e) };
    let bytes = std::fs::read(&choice.file).map_err(failed)?;
    let scales = [choice.attention, choice.ffn].map(f32::to_le_bytes).concat();
    Ok(vec![bytes, scales])
}

/// Reads the directions, unless both scales are 0: then the file is not even opened.
///
/// # Errors
/// When the file cannot be read or is not one of directions for this shape.
pub(super) fn read(
    choice: Option<&SteeringChoice>,
    shape: &Shape,
) -> Result<Option<Steering>, Error> {
    let Some(choice) = choice.filter(|c| c.attention != 0.0 || c.ffn != 0.0) else {
        return Ok(None);
    };
    let failed = |problem| Error::Steering { path: choice.file.clone(), problem };
    let bytes = std::fs::read(&choice.file).map_err(|e| failed(SteeringProblem::Unreadable(e)))?;
    Steering::parse(&bytes, shape.layers, shape.hidden, [choice.attention, choice.ffn])
        .map(Some)
        .map_err(|e| failed(SteeringProblem::Content(e)))
}
