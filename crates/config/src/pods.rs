//! Pods given by their labels.

use std::collections::BTreeMap;

/// The labels that a pod and its namespace have. Without labels, any pod matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSelector {
    pub labels: BTreeMap<String, String>,
    pub namespace_labels: BTreeMap<String, String>,
}

impl PodSelector {
    /// Tells whether the selector matches a pod with these labels in a namespace with those labels.
    pub fn selects(
        &self,
        labels: &BTreeMap<String, String>,
        namespace_labels: &BTreeMap<String, String>,
    ) -> bool {
        let has = |wanted: &BTreeMap<String, String>, all: &BTreeMap<String, String>| {
            wanted
                .iter()
                .all(|(key, value)| all.get(key) == Some(value))
        };
        has(&self.labels, labels) && has(&self.namespace_labels, namespace_labels)
    }

    /// Returns the words for messages: `pods with app=web in namespaces with team=blue`.
    pub fn words(&self) -> String {
        let list = |labels: &BTreeMap<String, String>| {
            let labels = labels.iter().map(|(key, value)| format!("{key}={value}"));
            labels.collect::<Vec<_>>().join(",")
        };
        let mut words = "pods".to_owned();
        if !self.labels.is_empty() {
            words += &format!(" with {}", list(&self.labels));
        }
        if !self.namespace_labels.is_empty() {
            words += &format!(" in namespaces with {}", list(&self.namespace_labels));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> BTreeMap<String, String> {
        let labels = text
            .split_terminator(',')
            .filter_map(|label| label.split_once('='));
        labels
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn pods_have_all_labels_of_a_selector() {
        let selector = PodSelector {
            labels: labels("app=web,tier=front"),
            namespace_labels: labels("team=blue"),
        };
        assert!(selector.selects(&labels("app=web,tier=front,x=y"), &labels("team=blue,z=")));
        assert!(!selector.selects(&labels("app=web"), &labels("team=blue")));
        assert!(!selector.selects(&labels("app=web,tier=front"), &labels("team=red")));
        assert!(PodSelector::default().selects(&labels(""), &labels("")));
        assert_eq!(
            selector.words(),
            "pods with app=web,tier=front in namespaces with team=blue"
        );
        assert_eq!(PodSelector::default().words(), "pods");
    }
}
