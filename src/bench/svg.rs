//! The table as a picture: prefill on the left axis, decoding on the right one, over the length of the context.
//!
//! 960 by 540 points, axes from zero, no scripts, no fonts of its own; light or dark as the reader's browser is. A bar
//! at a point reaches from the slowest repetition to the fastest.

use std::fmt::Write as _;

use super::csv::Recorded;
use super::row::Spread;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 540.0;
/// Where the axes are.
const LEFT: f64 = 80.0;
const RIGHT: f64 = WIDTH - 80.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = HEIGHT - 60.0;
/// About so many ticks on an axis.
const TICKS: f64 = 6.0;

const STYLE: &str = "\
<style>\
svg{background:#ffffff;color:#1f2937;font:14px sans-serif}\
.grid{stroke:#d1d5db;stroke-width:1}text{fill:currentColor}\
.prefill{stroke:#2563eb;fill:#2563eb}.decode{stroke:#dc2626;fill:#dc2626}\
path{fill:none!important;stroke-width:2}.old{stroke-dasharray:6 5;opacity:.6}text.prefill,text.decode{stroke:none}\
@media(prefers-color-scheme:dark){svg{background:#111827;color:#e5e7eb}.grid{stroke:#374151}\
.prefill{stroke:#60a5fa;fill:#60a5fa}.decode{stroke:#f87171;fill:#f87171}}\
</style>";

/// The rates of one of the curves.
type Rates = fn(&Recorded) -> Spread;

/// Numbers to points of the picture.
#[derive(Debug, Clone, Copy)]
struct Axis {
    step: f64,
    end: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// From zero to a tick at or beyond `max`.
    fn new(max: f64, (from, to): (f64, f64)) -> Self {
        let rough = if max > 0.0 { max / TICKS } else { 1.0 };
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|s| *s >= rough);
        let step = step.unwrap_or(rough);
        let end = step * (max / step).ceil().max(1.0);
        Self { step, end, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        self.from + (self.to - self.from) * value / self.end
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let (step, end) = (self.step, self.end);
        (0_u8..=20).map(move |i| f64::from(i) * step).take_while(move |tick| *tick <= end * 1.001)
    }
}

/// The picture of a table, with others dashed behind it.
pub fn chart(title: &str, new: &[Recorded], others: &[&[Recorded]]) -> String {
    let all = || others.iter().copied().flatten().chain(new);
    let most = |value: fn(&Recorded) -> f64| all().map(value).fold(0.0, f64::max);
    let x = Axis::new(most(|p| p.ctx_tokens as f64), (LEFT, RIGHT));
    let prefill = Axis::new(most(|p| p.prefill.max), (BOTTOM, TOP));
    let decode = Axis::new(most(|p| p.decode.max), (BOTTOM, TOP));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
         {STYLE}\n<title>{0}</title>\n<text x=\"{1}\" y=\"26\" text-anchor=\"middle\" font-size=\"18\">{0}</text>\n",
        escaped(title),
        WIDTH / 2.0
    );
    frame(&mut svg, x, prefill, decode);
    let kinds: [(&str, Axis, Rates); 2] =
        [("prefill", prefill, |p| p.prefill), ("decode", decode, |p| p.decode)];
    let others = others.iter().map(|points| (*points, " old"));
    for (points, more) in others.chain([(new, "")]) {
        for (class, axis, rates) in kinds {
            let known = points.iter().filter(|p| rates(p).median > 0.0);
            let known: Vec<_> = known.map(|p| (x.at(p.ctx_tokens as f64), rates(p))).collect();
            curve(&mut svg, &format!("{class}{more}"), axis, &known);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Grid, numbers and names of the axes.
fn frame(svg: &mut String, x: Axis, prefill: Axis, decode: Axis) {
    for tick in x.ticks() {
        let (at, below) = (x.at(tick), BOTTOM + 20.0);
        line(svg, "grid", (at, TOP), (at, BOTTOM));
        let shown = if x.end >= 4000.0 { format!("{}k", tick / 1000.0) } else { tick.to_string() };
        text(svg, ("", "middle"), (at, below), &shown);
    }
    for tick in prefill.ticks() {
        line(svg, "grid", (LEFT, prefill.at(tick)), (RIGHT, prefill.at(tick)));
        text(svg, ("prefill", "end"), (LEFT - 8.0, prefill.at(tick) + 5.0), &number(tick));
    }
    for tick in decode.ticks() {
        text(svg, ("decode", "start"), (RIGHT + 8.0, decode.at(tick) + 5.0), &number(tick));
    }
    text(svg, ("prefill", "start"), (LEFT - 60.0, TOP - 16.0), "prefill, tokens a second");
    text(svg, ("decode", "end"), (RIGHT + 60.0, TOP - 16.0), "decoding, tokens a second");
    text(svg, ("", "middle"), (f64::midpoint(LEFT, RIGHT), HEIGHT - 14.0), "context, tokens");
}

/// A line through the medians, a dot at each, and a bar where repetitions differ.
fn curve(svg: &mut String, class: &str, axis: Axis, points: &[(f64, Spread)]) {
    let mut path = String::new();
    for (i, (x, rate)) in points.iter().enumerate() {
        let letter = if i == 0 { 'M' } else { 'L' };
        write!(path, "{letter}{x:.1} {:.1}", axis.at(rate.median)).expect("memory");
    }
    if !path.is_empty() {
        writeln!(svg, "<path class=\"{class}\" d=\"{path}\"/>").expect("memory");
    }
    for (x, rate) in points {
        if rate.is_wide() {
            line(svg, class, (*x, axis.at(rate.min)), (*x, axis.at(rate.max)));
        }
        let y = axis.at(rate.median);
        writeln!(svg, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>")
            .expect("memory");
    }
}

fn line(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    )
    .expect("memory");
}

fn text(svg: &mut String, (class, anchor): (&str, &str), (x, y): (f64, f64), text: &str) {
    let text = escaped(text);
    writeln!(
        svg,
        "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>"
    )
    .expect("memory");
}

/// A tick without the noise of binary fractions.
fn number(tick: f64) -> String {
    let rounded = (tick * 1000.0).round() / 1000.0;
    rounded.to_string()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(ctx_tokens: usize, prefill: f64, decode: f64) -> Recorded {
        Recorded { ctx_tokens, prefill: Spread::one(prefill), decode: Spread::one(decode) }
    }

    #[test]
    fn axes_begin_at_zero_and_end_at_a_round_number() {
        for (max, step, end) in [
            (1.0, 0.2, 1.0),
            (352.0, 100.0, 400.0),
            (52.7, 10.0, 60.0),
            (32768.0, 10_000.0, 40_000.0),
            (0.0, 1.0, 1.0),
        ] {
            let axis = Axis::new(max, (0.0, 1.0));
            assert!((axis.step - step).abs() < 1e-9 && (axis.end - end).abs() < 1e-9, "{axis:?}");
            assert!(axis.ticks().count() <= 8 && axis.at(0.0).abs() < 1e-9);
        }
    }

    #[test]
    fn curves_of_both_tables_are_drawn_where_there_are_rates() {
        let mut new = [point(2048, 352.0, 52.7), point(8192, 303.0, 39.0)];
        new[1].prefill.max = 310.0;
        let svg = chart("a < b", &new, &[&[point(2048, 300.0, 0.0)]]);
        assert!(svg.contains("<title>a &lt; b</title>") && svg.ends_with("</svg>\n"));
        let count = |part: &str| svg.matches(part).count();
        // Two curves of the new table, one of the old: nothing was generated for it.
        assert_eq!((count("<path"), count("<circle"), count("old\"")), (3, 5, 2));
        // A point twice as high as another stands twice as far above the axis; the bar is that of the repetitions.
        assert_eq!(count("class=\"prefill\" x1"), 1);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn an_empty_table_is_an_empty_picture() {
        let svg = chart("", &[], &[]);
        assert!(svg.contains("context, tokens") && !svg.contains("<path") && !svg.contains("NaN"));
    }
}
