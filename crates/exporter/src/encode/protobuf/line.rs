//! A line of OpenMetrics in the form that the encoders of this daemon write, which has no time.

use super::message::LabelMessage;

/// A line that contains a sample.
#[derive(Debug, PartialEq)]
pub struct SampleLine {
    pub name: String,
    pub labels: Vec<LabelMessage>,
    pub value: f64,
    /// The number as an integer, if it is an integer: counts of buckets can have more digits than a
    /// float has.
    pub count: u64,
}

impl SampleLine {
    /// Parses a line; `None` if the line contains no sample.
    pub fn parse(line: &str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Vec::new(), rest),
        };
        // The text after the number is an exemplar, which has no place here.
        let number = rest.trim_start().split(' ').next()?;
        let value: f64 = number.parse().ok()?;
        let count = number
            .parse()
            .unwrap_or(if value > 0.0 { value as u64 } else { 0 });
        Some(Self {
            name: name.to_owned(),
            labels,
            value,
            count,
        })
    }

    /// Removes the label of this name, and returns its value.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self
            .labels
            .iter()
            .position(|label| label.name.as_deref() == Some(name))?;
        self.labels.remove(at).value
    }
}

/// Parses labels up to their end, and returns them and the rest of the line.
fn labels(mut rest: &str) -> Option<(Vec<LabelMessage>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, quoted) = rest.split_once("=\"")?;
        let (value, behind) = unescaped(quoted, Some('"'));
        labels.push(LabelMessage {
            name: Some(name.to_owned()),
            value: Some(value),
        });
        rest = behind;
    }
}

/// Returns the text up to `end` without its escapes, and the rest after `end`.
pub fn unescaped(text: &str, end: Option<char>) -> (String, &str) {
    let mut plain = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, 'n')) => plain.push('\n'),
                Some((_, escaped)) => plain.push(escaped),
                None => plain.push('\\'),
            },
            c if Some(c) == end => return (plain, &text[at + c.len_utf8()..]),
            c => plain.push(c),
        }
    }
    (plain, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parsed = (String, Vec<(String, String)>, f64, u64);

    fn parsed(line: &str) -> Option<Parsed> {
        let SampleLine {
            name,
            labels,
            value,
            count,
        } = SampleLine::parse(line)?;
        let pair = |label: LabelMessage| {
            (
                label.name.unwrap_or_default(),
                label.value.unwrap_or_default(),
            )
        };
        Some((name, labels.into_iter().map(pair).collect(), value, count))
    }

    #[test]
    fn labels_and_numbers_are_read_as_they_were_written() {
        let none = Vec::new();
        assert_eq!(parsed("a 1"), Some(("a".into(), none.clone(), 1.0, 1)));
        assert_eq!(
            parsed("a{} 0.25"),
            Some(("a".into(), none.clone(), 0.25, 0))
        );
        assert_eq!(
            parsed("a 18446744073709551615"),
            Some(("a".into(), none, u64::MAX as f64, u64::MAX))
        );
        let labels = vec![
            ("x".into(), "a\"},\\\n b=\"1".into()),
            ("le".into(), "+Inf".into()),
        ];
        let line = "a_bucket{x=\"a\\\"},\\\\\\n b=\\\"1\",le=\"+Inf\"} 7 # {trace=\"t\"} 0.5";
        assert_eq!(parsed(line), Some(("a_bucket".into(), labels, 7.0, 7)));
        for line in ["# EOF", "a", "a{x=\"1} 2", ""] {
            assert_eq!(parsed(line), None, "{line}");
        }
        assert!(parsed("a NaN").is_some_and(|(.., value, count)| value.is_nan() && count == 0));
    }

    #[test]
    fn a_label_is_taken_once() {
        let mut line = SampleLine::parse("a{x=\"1\",le=\"2.0\"} 3").expect("a sample");
        assert_eq!(
            (line.take("le"), line.take("le")),
            (Some("2.0".into()), None)
        );
        assert_eq!(line.labels.len(), 1);
    }
}
