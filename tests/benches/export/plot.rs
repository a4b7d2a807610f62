//! Plots of curves as SVG: panels side by side, both axes logarithmic.

use std::fmt::Write as _;

pub struct Panel {
    pub title: String,
    pub curves: Vec<Curve>,
}

pub struct Curve {
    pub name: String,
    /// True for a curve in the second colour.
    pub second: bool,
    pub dashed: bool,
    /// The numbers of entries and the microseconds.
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 48.0;
const GAP: f64 = 24.0;
/// Two colours that colour-blind readers can tell apart.
const COLOURS: [&str; 2] = ["#0072b2", "#d55e00"];

/// The range of an axis in powers of ten.
#[derive(Clone, Copy)]
struct Range {
    from: i32,
    to: i32,
}

impl Range {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let (mut from, mut to) = (i32::MAX, i32::MIN);
        for value in values {
            from = from.min(value.log10().floor() as i32);
            to = to.max(value.log10().ceil() as i32);
        }
        Self { from, to: to.max(from + 1) }
    }

    fn powers(self) -> impl Iterator<Item = i32> {
        self.from..=self.to
    }

    /// Returns the place of a value on the axis, from 0 to 1.
    fn place(self, value: f64) -> f64 {
        (value.log10() - f64::from(self.from)) / f64::from(self.to - self.from)
    }
}

/// Draws the panels with the same axes. Returns the SVG.
pub fn draw(panels: &[Panel]) -> String {
    let points = || panels.iter().flat_map(|panel| &panel.curves).flat_map(|curve| &curve.points);
    let (x, y) = (Range::of(points().map(|point| point.0)), Range::of(points().map(|point| point.1)));
    let width = LEFT + panels.len() as f64 * (WIDTH + GAP);
    let height = TOP + HEIGHT + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\" fill=\"#222\">\n<title>Time to read a map, by its entries</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (index, panel) in panels.iter().enumerate() {
        let left = LEFT + index as f64 * (WIDTH + GAP);
        svg += &format!("<g transform=\"translate({left} {TOP})\">\n");
        svg += &axes(&panel.title, x, y, index == 0);
        for (line, curve) in panel.curves.iter().enumerate() {
            svg += &draw_curve(curve, line, x, y);
        }
        svg += "</g>\n";
    }
    svg += &text(14.0, TOP + HEIGHT / 2.0, "middle", "time", " transform=\"rotate(-90 14 184)\"");
    svg + "</svg>\n"
}

fn axes(title: &str, x: Range, y: Range, labels: bool) -> String {
    let mut out = text(WIDTH / 2.0, -12.0, "middle", title, " font-weight=\"bold\"");
    for power in x.powers() {
        let at = WIDTH * x.place(10_f64.powi(power));
        out += &line([at, 0.0, at, HEIGHT]);
        out += &text(at, HEIGHT + 18.0, "middle", &count(power), "");
    }
    for power in y.powers() {
        let at = HEIGHT * (1.0 - y.place(10_f64.powi(power)));
        out += &line([0.0, at, WIDTH, at]);
        if labels {
            out += &text(-8.0, at + 4.0, "end", &duration(power), "");
        }
    }
    out + &text(WIDTH / 2.0, HEIGHT + 38.0, "middle", "entries", "")
}

fn draw_curve(curve: &Curve, index: usize, x: Range, y: Range) -> String {
    let colour = COLOURS[usize::from(curve.second)];
    let dashes = if curve.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
    let stroke = format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}");
    let (mut path, mut dots) = (String::new(), String::new());
    for &(entries, time) in &curve.points {
        let (cx, cy) = (WIDTH * x.place(entries), HEIGHT * (1.0 - y.place(time)));
        // Writing to a String can't fail.
        let _ = write!(path, "{cx:.1},{cy:.1} ");
        let _ = write!(dots, "<circle cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\" fill=\"{colour}\"/>");
    }
    // The legend is at the upper left, where no curve is since all rise.
    let at = 16.0 + 18.0 * index as f64;
    format!(
        "<polyline points=\"{}\" {stroke}/>{dots}\n<path d=\"M10 {at}h30\" {stroke}/>{}",
        path.trim_end(),
        text(46.0, at + 4.0, "start", &curve.name, ""),
    )
}

fn line([x1, y1, x2, y2]: [f64; 4]) -> String {
    format!("<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#ddd\"/>\n")
}

/// Returns a text element. The text needs no escapes because it comes from this program.
fn text(x: f64, y: f64, anchor: &str, text: &str, more: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{more}>{text}</text>\n")
}

fn count(power: i32) -> String {
    let digits = 10_u64.pow(power.rem_euclid(3).unsigned_abs());
    format!("{digits}{}", ["", "k", "M", "G"][(power / 3).clamp(0, 3) as usize])
}

/// Returns the label of a power of ten in microseconds.
fn duration(power: i32) -> String {
    let digits = 10_u64.pow(power.rem_euclid(3).unsigned_abs());
    let unit = ["ns", "us", "ms", "s"][(power.div_euclid(3) + 1).clamp(0, 3) as usize];
    format!("{digits} {unit}")
}
