//! Power and temperature of the GPU, as the kernel tells them. Everything is optional.

use std::fs;
use std::path::{Path, PathBuf};

/// Where to read; without it nothing is known.
#[derive(Debug, Default)]
pub(super) struct Sensors {
    hwmon: Option<PathBuf>,
}

impl Sensors {
    /// Those of the only graphics card below `root`, which is `/` outside tests. Among several it is not
    /// known which one computes.
    pub(super) fn find(root: &Path) -> Self {
        let cards = entries(&root.join("sys/class/drm")).into_iter().filter(|card| is_card(card));
        let mut found = cards.flat_map(|card| entries(&card.join("device/hwmon")));
        let first = found.next();
        Self { hwmon: first.filter(|_| found.next().is_none()) }
    }

    pub(super) fn watts(&self) -> Option<f64> {
        let microwatts = self.number("power1_average").or_else(|| self.number("power1_input"));
        microwatts.map(|n| n / 1e6)
    }

    pub(super) fn temp_c(&self) -> Option<f64> {
        self.number("temp1_input").map(|n| n / 1e3)
    }

    fn number(&self, file: &str) -> Option<f64> {
        fs::read_to_string(self.hwmon.as_ref()?.join(file)).ok()?.trim().parse().ok()
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(dir).map(|all| all.flatten().map(|entry| entry.path()).collect());
    listed.unwrap_or_default()
}

/// `card0` is a card, `card0-DP-1` a connector.
fn is_card(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let number = name.strip_prefix("card").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_card_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join("sys/class/drm").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let read = || {
            let sensors = Sensors::find(dir.path());
            (sensors.watts(), sensors.temp_c())
        };
        assert_eq!(read(), (None, None));
        put("card0-DP-1/device/hwmon/hwmon0/temp1_input", "1000\n");
        put("card1/device/hwmon/hwmon3/temp1_input", "61000\n");
        assert_eq!(read(), (None, Some(61.0)));
        put("card1/device/hwmon/hwmon3/power1_average", "95500000\n");
        assert_eq!(read(), (Some(95.5), Some(61.0)));
        put("card2/device/hwmon/hwmon4/temp1_input", "40000\n");
        assert_eq!(read(), (None, None));
    }
}
