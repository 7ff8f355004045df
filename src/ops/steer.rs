//! Directional steering (model.md 4).

use thiserror::Error;

/// `y -= scale * direction * dot(direction, y)`, the dot product left to right in f32.
pub fn steer(y: &mut [f32], direction: &[f32], scale: f32) {
    assert!(y.len() == direction.len(), "steer: lengths differ");
    let dot: f32 = y.iter().zip(direction).map(|(a, b)| a * b).sum();
    let amount = scale * dot;
    for (v, d) in y.iter_mut().zip(direction) {
        *v -= amount * d;
    }
}

/// One direction for each layer, and how strongly the two edits apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Steering {
    hidden: usize,
    directions: Vec<f32>,
    /// Factor of the edit of the attention or DeltaNet output.
    pub attention: f32,
    /// Factor of the edit of the expert output.
    pub ffn: f32,
}

/// Why a direction file was refused.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum SteeringError {
    /// Another size than one f32 row for each layer.
    #[error(
        "directional steering file must contain exactly {layers} x {hidden} f32 values ({expected} bytes), \
         found {found} bytes"
    )]
    Size {
        /// Layers of the model.
        layers: usize,
        /// Values in a row.
        hidden: usize,
        /// Bytes the file should have.
        expected: usize,
        /// Bytes it has.
        found: usize,
    },
    /// A NaN or an infinity.
    #[error("directional steering file: value {index} of layer {layer} is not finite")]
    NotFinite {
        /// Layer of the row.
        layer: usize,
        /// Place in the row.
        index: usize,
    },
    /// A row that is neither zero nor of length 1.
    #[error(
        "directional steering file: the row of layer {layer} has norm {norm}, expected 1 (or an all-zero row)"
    )]
    Norm {
        /// Layer of the row.
        layer: usize,
        /// Its length.
        norm: f64,
    },
}

impl Steering {
    /// Reads the bytes of a direction file: `layers` rows of `hidden` little-endian f32, each of norm 1 within
    /// 1e-3, or all zero, which turns the layer off.
    pub fn parse(
        bytes: &[u8],
        layers: usize,
        hidden: usize,
        [attention, ffn]: [f32; 2],
    ) -> Result<Self, SteeringError> {
        let expected = layers * hidden * size_of::<f32>();
        if bytes.len() != expected {
            return Err(SteeringError::Size { layers, hidden, expected, found: bytes.len() });
        }
        let directions: Vec<f32> =
            bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        for (layer, row) in directions.chunks_exact(hidden).enumerate() {
            if let Some(index) = row.iter().position(|v| !v.is_finite()) {
                return Err(SteeringError::NotFinite { layer, index });
            }
            let norm = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
            if norm != 0.0 && (norm - 1.0).abs() > 1e-3 {
                return Err(SteeringError::Norm { layer, norm });
            }
        }
        Ok(Self { hidden, directions, attention, ffn })
    }

    /// The direction of a layer; `None` where its row is zero.
    pub fn direction(&self, layer: usize) -> Option<&[f32]> {
        let row = &self.directions[layer * self.hidden..][..self.hidden];
        row.iter().any(|v| *v != 0.0).then_some(row)
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "exact results are meant")]
mod tests {
    use super::*;

    fn bytes(rows: &[&[f32]]) -> Vec<u8> {
        rows.concat().iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    #[test]
    fn scale_one_projects_a_unit_direction_away() {
        let direction = [0.6, 0.0, 0.8];
        let mut y = [1.0, 2.0, 3.0];
        steer(&mut y, &direction, 1.0);
        let along: f32 = y.iter().zip(direction).map(|(a, b)| a * b).sum();
        assert!(along.abs() < 1e-6, "{y:?}");
        assert_eq!(y[1], 2.0);

        let mut amplified = [1.0, 2.0, 3.0];
        steer(&mut amplified, &direction, -1.0);
        assert!((amplified[0] - 2.8).abs() < 1e-6 && (amplified[2] - 5.4).abs() < 1e-6);
    }

    #[test]
    fn a_good_file_is_taken_as_it_is() {
        let file = bytes(&[&[0.6, 0.8], &[0.0, 0.0]]);
        let steering = Steering::parse(&file, 2, 2, [0.0, 1.0]).unwrap();
        assert_eq!(steering.direction(0), Some([0.6f32, 0.8].as_slice()));
        assert_eq!(steering.direction(1), None);
    }

    #[test]
    fn bad_files_say_where() {
        let check = |rows: &[&[f32]], expected: &str| {
            let error = Steering::parse(&bytes(rows), 2, 2, [1.0, 1.0]).unwrap_err();
            assert_eq!(error.to_string(), expected);
        };
        check(
            &[&[1.0, 0.0]],
            "directional steering file must contain exactly 2 x 2 f32 values (16 bytes), found 8 bytes",
        );
        check(
            &[&[1.0, 0.0], &[0.0, f32::NAN]],
            "directional steering file: value 1 of layer 1 is not finite",
        );
        check(
            &[&[1.0, 0.0], &[0.0, 2.0]],
            "directional steering file: the row of layer 1 has norm 2, expected 1 (or an all-zero row)",
        );
    }
}
