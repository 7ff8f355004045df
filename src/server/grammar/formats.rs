//! Formats of strings as patterns: times by RFC 3339, mail by RFC 5321, names of hosts by RFC 1123, addresses by RFC 4291
//! and 3986, `uuid` by RFC 9562.
//!
//! Where little is lost, a pattern takes less than its format allows: no leap seconds, no `--` in the name of a host, no
//! addresses in brackets. It never takes more.

use std::sync::LazyLock;

/// The patterns that the strings of a format match, all of them; `None` for a format that is not known.
pub(super) fn patterns(format: &str) -> Option<&'static [String]> {
    PATTERNS.iter().find(|(name, _)| *name == format).map(|(_, patterns)| &patterns[..])
}

/// The names of the formats that are known.
pub(super) fn names() -> String {
    PATTERNS.each_ref().map(|(name, _)| *name).join(", ")
}

/// Months by their days, and the 29th of February in years that have one.
const DATE: &str = "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])\
    |(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))\
    |(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)";

const TIME: &str = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";

/// Labels of letters and digits, with single hyphens between them.
const HOST: &str = r"[0-9A-Za-z](?:-?[0-9A-Za-z])*(?:\.[0-9A-Za-z](?:-?[0-9A-Za-z])*)*";

/// No label is longer than 63 characters.
const LABELS: &str = r"[^.]{1,63}(?:\.[^.]{1,63})*";

const ATOM: &str = "[0-9A-Za-z!#$%&'*+/=?^_`{|}~-]+";

const OCTET: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

static PATTERNS: LazyLock<[(&str, Vec<String>); 10]> = LazyLock::new(|| {
    let date_time = format!("{DATE}T{TIME}");
    let mail = format!(r"{ATOM}(?:\.{ATOM})*@{HOST}");
    let mail_labels = format!("[^@]{{1,64}}@{LABELS}");
    let v4 = format!(r"{OCTET}(?:\.{OCTET}){{3}}");
    let uuid = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
    let formats: [(&str, &[&str]); 10] = [
        ("date", &[DATE]),
        ("date-time", &[&date_time]),
        ("duration", &[&duration()]),
        ("email", &[&mail, &mail_labels, ".{1,253}"]),
        ("hostname", &[HOST, LABELS, ".{1,253}"]),
        ("ipv4", &[&v4]),
        ("ipv6", &[&v6()]),
        ("time", &[TIME]),
        ("uri", &[&uri()]),
        ("uuid", &[uuid]),
    ];
    formats
        .map(|(name, wholes)| (name, wholes.iter().map(|whole| format!("^(?:{whole})$")).collect()))
});

/// Parts of a duration follow each other without a gap: no seconds behind hours without minutes.
fn duration() -> String {
    let chain = |units: [char; 3]| {
        let [first, second, third] = units.map(|unit| format!("[0-9]+{unit}"));
        format!("(?:{first}(?:{second}(?:{third})?)?|{second}(?:{third})?|{third})")
    };
    let (date, time) = (chain(['Y', 'M', 'D']), chain(['H', 'M', 'S']));
    format!("P(?:[0-9]+W|{date}(?:T{time})?|T{time})")
}

/// Eight groups, or fewer on the two sides of a gap.
fn v6() -> String {
    let group = "[0-9A-Fa-f]{1,4}";
    let mut forms = vec![format!("(?:{group}:){{7}}{group}"), "::".to_owned()];
    for before in 0..8 {
        // A gap stands for at least one group.
        let behind = 7 - before;
        let head = match before {
            0 => ":".to_owned(),
            n => format!("(?:{group}:){{{n}}}"),
        };
        forms.push(match behind {
            0 => format!("{head}:"),
            _ if before == 0 => format!("{head}(?::{group}){{1,{behind}}}"),
            _ => format!("{head}(?:(?::{group}){{1,{behind}}}|:)"),
        });
    }
    forms.join("|")
}

/// A scheme, then an authority with a path, or a path alone; a query and a fragment may follow.
fn uri() -> String {
    let of = |more: &str| format!("(?:[0-9A-Za-z._~!$&'()*+,;={more}-]|%[0-9A-Fa-f]{{2}})");
    let (name, user, path, rest) = (of(""), of(":"), of(":@"), of(":@/?"));
    format!(
        "[A-Za-z][0-9A-Za-z+.-]*:(?://(?:{user}*@)?{name}*(?::[0-9]*)?(?:/{path}*)*|/?(?:{path}+(?:/{path}*)*)?)\
         (?:\\?{rest}*)?(?:#{rest}*)?"
    )
}

#[cfg(test)]
mod tests {
    use fancy_regex::Regex;

    use super::*;

    #[test]
    fn formats_take_what_they_should() {
        let check = |format: &str, good: &[&str], bad: &[&str]| {
            let patterns = patterns(format).unwrap();
            let takes = |text: &str| {
                patterns.iter().all(|p| Regex::new(p).unwrap().is_match(text).unwrap())
            };
            for (texts, expected) in [(good, true), (bad, false)] {
                for text in texts {
                    assert_eq!(takes(text), expected, "{format}: {text}");
                }
            }
        };
        let long = "a".repeat(64);
        check(
            "date",
            &["2024-02-29", "2000-02-29", "2023-02-28", "1999-12-31"],
            &["2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "24-01-01", "2024-1-1"],
        );
        check("time", &["23:59:59Z", "00:00:00.5+01:00"], &["24:00:00Z", "12:00Z", "12:00:00"]);
        check("date-time", &["2024-02-29T12:00:00Z"], &["2024-02-29 12:00:00Z", "2024-02-29"]);
        check(
            "duration",
            &["P1Y2M3DT4H5M6S", "P4W", "PT36H", "P1D"],
            &["P", "PT", "P1DT", "1D", "P1Y3D", "PT1H3S"],
        );
        check("email", &["a.b+c@example.org", "x@y"], &["a@", "@b", "a..b@c", "a b@c", "a@b@c"]);
        check("email", &[], &[&format!("{long}a@b.c"), &format!("a@{long}.c")]);
        check("hostname", &["a-b.example", "x", "1.2"], &["-a", "a-", "a..b", "a_b", "", &long]);
        check(
            "ipv4",
            &["0.0.0.0", "255.1.20.99"],
            &["256.0.0.0", "01.2.3.4", "1.2.3", "1.2.3.4.5"],
        );
        check(
            "ipv6",
            &[
                "::",
                "::1",
                "1::",
                "fe80::1:2",
                "1:2:3:4:5:6:7:8",
                "1:2:3:4:5:6:7::",
                "::2:3:4:5:6:7:8",
            ],
            &["1:2:3:4:5:6:7", "1::2::3", ":1", "1:", "12345::", "1:2:3:4:5:6:7::8", ""],
        );
        check(
            "uri",
            &["https://u@example.org:80/a/b?q=1#f", "mailto:a@b.c", "urn:x:y", "file:///a%20b"],
            &["/a/b", "example.org", "http://a b", "http://a/%zz", "1http://a", ":a"],
        );
        check(
            "uuid",
            &["123e4567-e89b-12d3-a456-426614174000"],
            &["123e4567e89b12d3a456426614174000", "g23e4567-e89b-12d3-a456-426614174000"],
        );
        assert!(super::patterns("idn-email").is_none() && names().starts_with("date, date-time, "));
    }
}
