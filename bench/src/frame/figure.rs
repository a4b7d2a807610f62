//! Figures: panels of curves with confidence intervals, as SVG.

use std::ops::Range;
use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::combinators::{IntoLogRange as _, LogCoord};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::paired::Estimate;

const PANEL: (u32, u32) = (420, 360);
/// Colours that people with colour blindness can distinguish (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// A figure, drawn into `NAME.svg`.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: &'static str,
    pub title: &'static str,
    pub x: Axis,
    pub y: Axis,
    pub panels: Vec<Panel>,
}

#[derive(Clone, Copy, Debug)]
pub struct Axis {
    pub label: &'static str,
    pub logarithmic: bool,
}

#[derive(Clone, Debug)]
pub struct Panel {
    pub title: String,
    pub curves: Vec<Curve>,
}

#[derive(Clone, Debug)]
pub struct Curve {
    pub name: String,
    pub points: Vec<(f64, Estimate)>,
}

impl Figure {
    pub fn file(&self) -> String {
        format!("{}.svg", self.name)
    }

    /// Draws the figure into a file of this directory. All panels have the same axes.
    pub fn draw(&self, directory: &Path) -> Result<()> {
        let path = directory.join(self.file());
        self.draw_to(&path)
            .map_err(|error| anyhow!("draw {}: {error}", path.display()))
    }

    fn draw_to(&self, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
        let size = (PANEL.0 * self.panels.len() as u32, PANEL.1);
        let area = SVGBackend::new(path, size).into_drawing_area();
        area.fill(&WHITE)?;
        let points = || {
            self.panels
                .iter()
                .flat_map(|panel| &panel.curves)
                .flat_map(|curve| &curve.points)
        };
        let x = range(points().map(|(x, _)| *x));
        let y = range(points().flat_map(|(_, y)| [y.low, y.value, y.high]));
        for (panel, area) in self
            .panels
            .iter()
            .zip(area.split_evenly((1, self.panels.len())))
        {
            let mut chart = ChartBuilder::on(&area)
                .caption(&panel.title, ("sans-serif", 15))
                .margin(8)
                .x_label_area_size(40)
                .y_label_area_size(58)
                .build_cartesian_2d(Scale::new(self.x, x), Scale::new(self.y, y))?;
            chart
                .configure_mesh()
                .light_line_style(WHITE)
                .x_desc(self.x.label)
                .y_desc(self.y.label)
                .x_labels(8)
                .y_labels(8)
                .draw()?;
            for (number, curve) in panel.curves.iter().enumerate() {
                let colour = COLOURS[number % COLOURS.len()];
                let values = curve.points.iter().map(|(x, y)| (*x, y.value));
                chart
                    .draw_series(LineSeries::new(values.clone(), colour.stroke_width(2)))?
                    .label(&curve.name)
                    .legend(move |(x, y)| {
                        PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2))
                    });
                chart.draw_series(values.map(|at| Circle::new(at, 3, colour.filled())))?;
                let intervals = curve
                    .points
                    .iter()
                    .map(|(x, y)| [(*x, y.low), (*x, y.high)]);
                chart.draw_series(
                    intervals.map(|ends| PathElement::new(ends, colour.stroke_width(1))),
                )?;
            }
            chart
                .configure_series_labels()
                .position(panel.legend((self.x, x), (self.y, y)))
                .background_style(WHITE.mix(0.8))
                .border_style(WHITE)
                .draw()?;
        }
        Ok(area.present()?)
    }
}

impl Panel {
    /// Returns the upper corner of the figure that has fewer points below it, as the place of the
    /// legend.
    fn legend(
        &self,
        (x_axis, x): (Axis, [f64; 2]),
        (y_axis, y): (Axis, [f64; 2]),
    ) -> SeriesLabelPosition {
        let high = self.curves.iter().flat_map(|curve| &curve.points);
        let high = high.filter(|(_, value)| y_axis.part(y, value.high) > 0.5);
        let (left, right): (Vec<&(f64, Estimate)>, Vec<_>) =
            high.partition(|(at, _)| x_axis.part(x, *at) < 0.5);
        if left.len() > right.len() {
            SeriesLabelPosition::UpperRight
        } else {
            SeriesLabelPosition::UpperLeft
        }
    }
}

impl Axis {
    /// Returns the place of a value between the ends of the axis, 0 to 1.
    fn part(self, [low, high]: [f64; 2], value: f64) -> f64 {
        let scale = |value: f64| if self.logarithmic { value.ln() } else { value };
        (scale(value) - scale(low)) / (scale(high) - scale(low))
    }
}

/// Returns the least and the greatest of the values.
fn range(values: impl Iterator<Item = f64>) -> [f64; 2] {
    values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], value| {
        [low.min(value), high.max(value)]
    })
}

/// The scale of an axis.
enum Scale {
    Linear(RangedCoordf64),
    Logarithmic(LogCoord<f64>),
}

impl Scale {
    fn new(axis: Axis, [low, high]: [f64; 2]) -> Self {
        if axis.logarithmic {
            let (low, high) = (
                10_f64.powf(low.log10().floor()),
                10_f64.powf(high.log10().ceil()),
            );
            let high = if high > low { high } else { 10.0 * low };
            return Self::Logarithmic((low..high).log_scale().into());
        }
        let low = low.min(0.0);
        let high = if high > low {
            low + 1.1 * (high - low)
        } else {
            low + 1.0
        };
        Self::Linear((low..high).into())
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        match self {
            Self::Linear(axis) => axis.map(value, limit),
            Self::Logarithmic(axis) => axis.map(value, limit),
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match self {
            Self::Linear(axis) => axis.key_points(hint),
            Self::Logarithmic(axis) => axis.key_points(hint),
        }
    }

    fn range(&self) -> Range<f64> {
        match self {
            Self::Linear(axis) => axis.range(),
            Self::Logarithmic(axis) => axis.range(),
        }
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(value: &f64) -> String {
        let [giga, mega, kilo] = [1e9, 1e6, 1e3].map(|unit| value / unit);
        if giga.abs() >= 1.0 {
            format!("{giga} G")
        } else if mega.abs() >= 1.0 {
            format!("{mega} M")
        } else if kilo.abs() >= 10.0 {
            format!("{kilo} k")
        } else {
            // The number has nine digits at most, so that the inexact digits of floats are left
            // out.
            format!("{}", (value * 1e9).round() / 1e9)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_each_curve_and_axis() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let around = |value: f64| Estimate {
            value,
            low: 0.9 * value,
            high: 1.1 * value,
        };
        for logarithmic in [false, true] {
            let points = (1..=5)
                .map(|n| (f64::from(n), around(f64::from(n * n))))
                .collect();
            let panel = Panel {
                title: "left".into(),
                curves: vec![Curve {
                    name: "squares".into(),
                    points,
                }],
            };
            let axis = |label| Axis { label, logarithmic };
            let (x, y) = (axis("entries"), axis("time, us"));
            let figure = Figure {
                name: "test",
                title: "Test",
                x,
                y,
                panels: vec![panel.clone(), panel],
            };
            figure.draw(directory.path())?;
            let svg = std::fs::read_to_string(directory.path().join("test.svg"))?;
            for (text, times) in [
                ("squares", 2),
                ("entries", 2),
                ("time, us", 2),
                ("<polyline", 1),
            ] {
                assert!(svg.matches(text).count() >= times, "{text}: {svg}");
            }
        }
        Ok(())
    }

    #[test]
    fn the_legend_is_where_fewer_points_are() {
        let axis = Axis {
            label: "",
            logarithmic: false,
        };
        let at = |values: [f64; 4]| {
            let points = (0..).map(f64::from).zip(values.map(|value| Estimate {
                value,
                low: value,
                high: value,
            }));
            let curve = Curve {
                name: String::new(),
                points: points.collect(),
            };
            let panel = Panel {
                title: String::new(),
                curves: vec![curve],
            };
            panel.legend((axis, [0.0, 3.0]), (axis, [0.0, 9.0]))
        };
        assert!(matches!(
            at([9.0, 8.0, 1.0, 0.0]),
            SeriesLabelPosition::UpperRight
        ));
        assert!(matches!(
            at([0.0, 1.0, 8.0, 9.0]),
            SeriesLabelPosition::UpperLeft
        ));
    }
}
