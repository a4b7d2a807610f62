//! Answers to questions about a range of time.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The numbers of one series: a time in seconds since 1970, and the number as text.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct SampleSeries {
    #[serde(rename = "metric")]
    pub labels: BTreeMap<String, String>,
    pub values: Vec<(f64, String)>,
}

/// The fields of answers that this crate reads.
#[derive(Deserialize)]
struct RangeAnswer {
    data: Option<RangeData>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct RangeData {
    result: Vec<SampleSeries>,
}

/// Returns the error in a server's answer; `None` if it has another form.
pub fn error(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<RangeAnswer>(body).ok()?.error
}

/// Reads the answer to a question.
pub fn range_answer(body: &[u8]) -> Result<Vec<SampleSeries>, String> {
    let answer: RangeAnswer = serde_json::from_slice(body)
        .map_err(|error| format!("it does not answer as Prometheus does: {error}"))?;
    let none = || {
        answer
            .error
            .unwrap_or_else(|| "its answer has no data".to_owned())
    };
    answer.data.map(|data| data.result).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let text = r#"{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"key":"0"},"values":[[1435781430.781,"1"]]}]}}"#;
        let read = range_answer(text.as_bytes()).unwrap();
        assert_eq!(read[0].values, [(1_435_781_430.781, "1".to_owned())]);
        assert!(
            range_answer(b"<html>").is_err()
                && range_answer(br#"{"error":"a"}"#).unwrap_err() == "a"
        );
    }
}
