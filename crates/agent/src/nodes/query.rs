//! The parameters of requests about nodes.

use twinprobe_client::NamedServer;

use crate::engine::series::query::{ChartQuery, MOST_KEYS};

/// The parameters of a request, not parsed.
pub type QueryPairs = Vec<(String, String)>;

/// The request for a chart of a probe at some nodes.
#[derive(Clone, Debug)]
pub struct NodeChartQuery {
    pub probe: String,
    /// The places of the nodes in the file.
    pub places: Vec<usize>,
    /// The chart. Its times are absolute, so that all nodes show the same range.
    pub chart: ChartQuery,
}

/// The request for the newest window of a probe at some nodes.
#[derive(Clone, Debug)]
pub struct NodeWindowQuery {
    pub probe: String,
    /// The places of the nodes in the file.
    pub places: Vec<usize>,
    /// The number of entries of each metric in the answer.
    pub top: usize,
}

impl NodeChartQuery {
    /// Reads the parameters of a request. An error names the parameter and its possible values.
    pub fn parse(pairs: QueryPairs, nodes: &[NamedServer]) -> Result<Self, String> {
        let (probe, places, rest) = common(pairs, nodes)?;
        Ok(Self {
            probe,
            places,
            chart: ChartQuery::parse(rest)?,
        })
    }
}

impl NodeWindowQuery {
    /// Reads the parameters of a request. An error names the parameter and its possible values.
    pub fn parse(pairs: QueryPairs, nodes: &[NamedServer]) -> Result<Self, String> {
        let (probe, places, rest) = common(pairs, nodes)?;
        let mut top = 1;
        for (name, text) in rest {
            if name != "top" {
                return Err(format!(
                    "there is no parameter {name}; there are probe, node, top"
                ));
            }
            let known = text
                .parse()
                .ok()
                .filter(|top| (1..=MOST_KEYS).contains(top));
            top = known.ok_or_else(|| {
                format!("top={text} is not a number of keys; use 1 to {MOST_KEYS}")
            })?;
        }
        Ok(Self { probe, places, top })
    }
}

/// Removes `probe` and `node` from the parameters, and returns them. Without `node`, the request is
/// about all nodes.
fn common(
    pairs: QueryPairs,
    nodes: &[NamedServer],
) -> Result<(String, Vec<usize>, QueryPairs), String> {
    let (mut probe, mut places, mut rest) = (String::new(), Vec::new(), Vec::new());
    for (name, text) in pairs {
        match &*name {
            "probe" => probe = text,
            "node" => {
                let place = nodes.iter().position(|node| node.name == text);
                let place = place
                    .ok_or_else(|| format!("node={text}: the file of --nodes has no such name"))?;
                if !places.contains(&place) {
                    places.push(place);
                }
            }
            _ => rest.push((name, text)),
        }
    }
    if probe.is_empty() {
        return Err("probe is missing: the name of a probe of the nodes".to_owned());
    }
    if places.is_empty() {
        places = (0..nodes.len()).collect();
    }
    Ok((probe, places, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> QueryPairs {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn nodes() -> Vec<NamedServer> {
        NamedServer::list("nodes".as_ref(), "a unix:/a\nb unix:/b\nc unix:/c\n").unwrap()
    }

    #[test]
    fn all_nodes_get_the_same_moments() {
        let query = NodeChartQuery::parse(
            pairs("probe=p&metric=m&node=c&node=a&node=c&from=-5m&top=3"),
            &nodes(),
        );
        let query = query.unwrap();
        assert_eq!((&*query.probe, &query.places[..]), ("p", &[2, 0][..]));
        let sent = query.chart.parameters();
        assert_eq!(
            (sent[0].clone(), sent[1].0),
            (("metric", "m".to_owned()), "from")
        );
        assert!(sent[1].1.ends_with('Z'), "{sent:?}");
        assert_eq!(sent.last(), Some(&("top", "3".to_owned())));
        assert_eq!(
            NodeWindowQuery::parse(pairs("probe=p"), &nodes())
                .unwrap()
                .places,
            [0, 1, 2]
        );
    }

    #[test]
    fn what_is_not_possible_is_named() {
        for (text, expected) in [
            ("metric=m", "probe is missing"),
            ("probe=p", "metric is missing"),
            (
                "probe=p&metric=m&node=d",
                "node=d: the file of --nodes has no such name",
            ),
            ("probe=p&metric=m&server=x", "there is no parameter server"),
        ] {
            let error = NodeChartQuery::parse(pairs(text), &nodes()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        for (text, expected) in [
            ("probe=p&top=0", "top=0 is not a number of keys"),
            ("probe=p&x=1", "there is no parameter x"),
        ] {
            let error = NodeWindowQuery::parse(pairs(text), &nodes()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
