//! The cost that a probe may have on a node.

use twinprobe_api::{FleetBudget, NodeReport};

/// Returns the reason why a node's report exceeds the budget: `400 ns per packet at eth0 ingress,
/// 100 are in the budget`.
pub fn over(report: &NodeReport, budget: &FleetBudget) -> Option<String> {
    let place = report.at.as_ref().map_or_else(
        || " in the trial at admission".to_owned(),
        |at| format!(" at {at}"),
    );
    let cost = budget.ns_per_packet.zip(report.ns_per_packet);
    // The budget is a whole number below 2^53.
    let slow = cost.filter(|(most, cost)| *cost > *most as f64);
    if let Some((most, cost)) = slow {
        return Some(format!(
            "{cost:.0} ns per packet{place}, {most} are in the budget"
        ));
    }
    let counted = [
        (
            budget.failed_inserts,
            report.failed_inserts,
            "insertions into full maps",
        ),
        (budget.lost_windows, report.lost_windows, "lost windows"),
        (budget.lost_events, report.lost_events, "lost events"),
    ];
    counted.into_iter().find_map(|(most, count, what)| {
        let most = most.filter(|most| count > *most)?;
        Some(format!("{count} {what}, {most} are in the budget"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_budget_is_judged() {
        let report = NodeReport {
            ns_per_packet: Some(120.4),
            at: Some("eth0 ingress".to_owned()),
            failed_inserts: 3,
            lost_windows: 2,
            lost_events: 1,
            ..NodeReport::default()
        };
        let none = FleetBudget::default();
        assert_eq!(over(&report, &none), None, "no budget is no limit");
        let over = |budget| over(&report, &budget);
        let said = over(FleetBudget {
            ns_per_packet: Some(120),
            ..none
        });
        assert_eq!(
            said.as_deref(),
            Some("120 ns per packet at eth0 ingress, 120 are in the budget")
        );
        assert_eq!(
            over(FleetBudget {
                ns_per_packet: Some(121),
                ..none
            }),
            None
        );
        let said = over(FleetBudget {
            failed_inserts: Some(2),
            ..none
        });
        assert_eq!(
            said.as_deref(),
            Some("3 insertions into full maps, 2 are in the budget")
        );
        assert_eq!(
            over(FleetBudget {
                failed_inserts: Some(3),
                ..none
            }),
            None
        );
        assert!(
            over(FleetBudget {
                lost_windows: Some(1),
                ..none
            })
            .is_some()
        );
        assert!(
            over(FleetBudget {
                lost_events: Some(0),
                ..none
            })
            .is_some()
        );
    }
}
