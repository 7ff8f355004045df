//! The table as text.
//!
//! | column | type | when |
//! |---|---|---|
//! | `ctx_tokens`, `prefill_tokens` | whole | always |
//! | `prefill_tps` | two decimals | always; the median of repetitions |
//! | `gen_tokens` | whole | always |
//! | `gen_tps` | two decimals | always; the median of repetitions |
//! | `kvcache_bytes` | whole | always |
//! | `prefill_tps_min`, `prefill_tps_max`, `gen_tps_min`, `gen_tps_max` | two decimals | repetitions |
//! | `recurrent_bytes`, `gpu_mem_bytes` | whole | meta |
//! | `watts`, `temp_c` | one decimal | meta |
//! | `mtp_accept` | nothing yet | meta |
//! | `repeat` | whole | meta |
//!
//! A cell of what is not known is empty. Lines that begin with `#` are comments.

use super::row::{Row, Spread};

const ALWAYS: &str = "ctx_tokens,prefill_tokens,prefill_tps,gen_tokens,gen_tps,kvcache_bytes";
const SPREAD: &str = ",prefill_tps_min,prefill_tps_max,gen_tps_min,gen_tps_max";
const META: &str = ",recurrent_bytes,gpu_mem_bytes,watts,temp_c,mtp_accept,repeat";

/// Which columns stand behind the six that always do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Columns {
    /// Minimum and maximum of repetitions.
    pub spread: bool,
    /// Memory, power, heat.
    pub meta: bool,
}

/// What is known about the device at a frontier.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Device {
    /// Bytes that the program takes on the GPU.
    pub mem_bytes: Option<u64>,
    /// Power.
    pub watts: Option<f64>,
    /// Temperature.
    pub temp_c: Option<f64>,
}

impl Columns {
    /// The first line.
    pub fn header(self) -> String {
        let parts = [(true, ALWAYS), (self.spread, SPREAD), (self.meta, META)];
        parts.iter().filter(|(shown, _)| *shown).map(|(_, names)| *names).collect()
    }

    /// The line of a row.
    pub fn line(self, row: &Row, device: Device) -> String {
        let mut line = format!(
            "{},{},{:.2},{},{:.2},{}",
            row.ctx_tokens,
            row.prefill_tokens,
            row.prefill_tps,
            row.gen_tokens,
            row.gen_tps,
            row.kvcache_bytes
        );
        if self.spread {
            let rates =
                [row.prefill_tps_min, row.prefill_tps_max, row.gen_tps_min, row.gen_tps_max];
            line.extend(rates.map(|rate| format!(",{rate:.2}")));
        }
        if self.meta {
            let cell = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.1}"));
            let mem = device.mem_bytes.map_or_else(String::new, |n| n.to_string());
            let (watts, temp) = (cell(device.watts), cell(device.temp_c));
            let (recurrent, repeat) = (row.recurrent_bytes.to_string(), row.repeat.to_string());
            for cell in [&recurrent, &mem, &watts, &temp, "", &repeat] {
                line.push(',');
                line.push_str(cell);
            }
        }
        line
    }
}

/// The rates of a row, by what a table says of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Recorded {
    /// Length of the context.
    pub ctx_tokens: usize,
    /// Prefill, tokens a second.
    pub prefill: Spread,
    /// Generation, tokens a second; 0 where nothing was generated.
    pub decode: Spread,
}

impl From<&Row> for Recorded {
    fn from(row: &Row) -> Self {
        let spread = |median, min, max| Spread { median, min, max };
        Self {
            ctx_tokens: row.ctx_tokens,
            prefill: spread(row.prefill_tps, row.prefill_tps_min, row.prefill_tps_max),
            decode: spread(row.gen_tps, row.gen_tps_min, row.gen_tps_max),
        }
    }
}

/// Why a text is no table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CsvError {
    /// No line names the columns.
    #[error("there is no header line")]
    NoHeader,
    /// A column that is needed.
    #[error("there is no column {0}")]
    NoColumn(&'static str),
    /// A cell that is no number.
    #[error("line {line}: no number in column {column}")]
    NoNumber {
        /// Line of the file, from 1.
        line: usize,
        /// The column.
        column: &'static str,
    },
}

/// Where a column is.
#[derive(Debug, Clone, Copy)]
struct Column {
    name: &'static str,
    at: usize,
}

impl Column {
    fn find(header: &str, name: &'static str) -> Option<Self> {
        let at = header.split(',').position(|cell| cell.trim() == name)?;
        Some(Self { name, at })
    }

    fn need(header: &str, name: &'static str) -> Result<Self, CsvError> {
        Self::find(header, name).ok_or(CsvError::NoColumn(name))
    }

    fn cell(self, line: &str) -> &str {
        line.split(',').nth(self.at).unwrap_or_default().trim()
    }

    fn rate(self, (line, text): (usize, &str)) -> Result<f64, CsvError> {
        let number = self.cell(text).parse::<f64>().ok().filter(|x| x.is_finite() && *x >= 0.0);
        number.ok_or(CsvError::NoNumber { line, column: self.name })
    }
}

/// A rate, and how far its repetitions reach where the table has that.
struct RateColumns {
    median: Column,
    ends: Option<[Column; 2]>,
}

impl RateColumns {
    fn find(header: &str, [median, min, max]: [&'static str; 3]) -> Result<Self, CsvError> {
        let ends = Column::find(header, min).zip(Column::find(header, max));
        Ok(Self { median: Column::need(header, median)?, ends: ends.map(<[_; 2]>::from) })
    }

    fn read(&self, line: (usize, &str)) -> Result<Spread, CsvError> {
        let median = self.median.rate(line)?;
        match self.ends {
            Some(ends) if ends.iter().any(|end| !end.cell(line.1).is_empty()) => {
                let [min, max] = [ends[0].rate(line)?, ends[1].rate(line)?];
                Ok(Spread { median, min: min.min(median), max: max.max(median) })
            }
            _ => Ok(Spread::one(median)),
        }
    }
}

/// Reads the columns that are compared. Others, and their order, do not matter.
///
/// # Errors
/// When a column or a number is missing.
pub fn parse(text: &str) -> Result<Vec<Recorded>, CsvError> {
    let is_content = |line: &(usize, &str)| !line.1.trim().is_empty() && !line.1.starts_with('#');
    let mut lines = text.lines().enumerate().map(|(i, line)| (i + 1, line)).filter(is_content);
    let (_, header) = lines.next().ok_or(CsvError::NoHeader)?;
    let ctx = Column::need(header, "ctx_tokens")?;
    let prefill = RateColumns::find(header, ["prefill_tps", "prefill_tps_min", "prefill_tps_max"])?;
    let decode = RateColumns::find(header, ["gen_tps", "gen_tps_min", "gen_tps_max"])?;
    let row = |line: (usize, &str)| {
        let missing = CsvError::NoNumber { line: line.0, column: ctx.name };
        Ok(Recorded {
            ctx_tokens: ctx.cell(line.1).parse().map_err(|_| missing)?,
            prefill: prefill.read(line)?,
            decode: decode.read(line)?,
        })
    };
    lines.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::row::{Series, tests::visit};
    use super::*;

    #[test]
    fn rows_are_written_and_read_back() {
        let plain = Columns::default();
        let all = Columns { spread: true, meta: true };
        let row = Series::new(visit(512, 400, 130)).row();
        assert_eq!(plain.header(), ALWAYS);
        assert_eq!(plain.line(&row, Device::default()), "512,100,500.00,10,153.85,5000");
        let device = Device { mem_bytes: Some(7), watts: Some(90.25), temp_c: None };
        let line = all.line(&row, device);
        assert_eq!(
            line,
            "512,100,500.00,10,153.85,5000,500.00,500.00,153.85,153.85,1000,7,90.2,,,1"
        );
        assert_eq!(all.header().split(',').count(), line.split(',').count());
        let (prefill, decode) = (Spread::one(500.0), Spread::one(153.85));
        let recorded = Recorded { ctx_tokens: 512, prefill, decode };
        let text = format!("# q36\n{}\n{line}\n", all.header());
        assert_eq!(parse(&text), Ok(vec![recorded]));
        assert_eq!(parse("gen_tps, ctx_tokens,prefill_tps\n153.85,512,500\n"), Ok(vec![recorded]));
    }

    #[test]
    fn repetitions_are_read_where_there_are_some() {
        let wide = "ctx_tokens,prefill_tps,gen_tps,gen_tps_min,gen_tps_max";
        let decode = Spread { median: 20.0, min: 19.0, max: 22.0 };
        let recorded = Recorded { ctx_tokens: 512, prefill: Spread::one(500.0), decode };
        assert_eq!(parse(&format!("{wide}\n512,500,20,19,22\n")), Ok(vec![recorded]));
        let plain = Recorded { decode: Spread::one(20.0), ..recorded };
        assert_eq!(parse(&format!("{wide}\n512,500,20,,\n")), Ok(vec![plain]));
        let error = CsvError::NoNumber { line: 2, column: "gen_tps_max" };
        assert_eq!(parse(&format!("{wide}\n512,500,20,19,\n")), Err(error));
    }

    #[test]
    fn what_is_no_table_is_told() {
        let said = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(said("# only a comment\n"), "there is no header line");
        assert_eq!(said("ctx_tokens,gen_tps\n"), "there is no column prefill_tps");
        let table = |row: &str| format!("# x\n{ALWAYS}\n{row}\n");
        assert_eq!(said(&table("1,2,fast,4,5,6")), "line 3: no number in column prefill_tps");
        assert_eq!(said(&table("1,2,3")), "line 3: no number in column gen_tps");
        assert_eq!(said(&table("-1,2,3,4,5,6")), "line 3: no number in column ctx_tokens");
        assert_eq!(parse(ALWAYS), Ok(vec![]));
    }
}
