//! The broker has each window once and in order, and the packets add up to the sent ones.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use twinprobe_tests::scaled;
use twinprobe_tests::traffic::Running;

use super::site::{FEW, LAYOUTS, Message, NODES, Site};
use super::strikes::{Chaos, ROUNDS, Strike};
use crate::tables::layouts::close;

/// The packets that full counts send at least.
const PACKETS: u64 = 10_000_000;
/// The packets of a second at each node.
const RATE: [u64; 2] = [2_000, 5_000];

/// Strikes until there are enough strikes and enough packets. Only each second round of full counts
/// has all strikes, so that the kills make up more of it.
fn strike(site: &mut Site, traffic: &[Running]) -> Result<()> {
    let mut chaos = Chaos::new(site)?;
    let mut rounds = 0;
    let sent = || traffic.iter().map(Running::sent).sum::<u64>();
    while rounds < scaled(1, ROUNDS) || sent() < scaled(1, PACKETS) {
        chaos.round(if rounds % 2 == 0 {
            Strike::ALL.as_slice()
        } else {
            Strike::KILLS.as_slice()
        })?;
        rounds += 1;
    }
    chaos.end()?;
    let [repeats, gaps] = chaos.counted;
    println!(
        "{:?}\nthe streams told {repeats} repeats and {gaps} gaps",
        chaos.done
    );
    Ok(())
}

#[test]
fn three_nodes_are_exact_whatever_fails() -> Result<()> {
    let mut site = Site::new()?;
    let rate = scaled(RATE[0], RATE[1]).min(RATE[1]);
    let traffic = site
        .nodes
        .iter()
        .map(|node| node.traffic_of(rate))
        .collect::<Result<Vec<_>>>()?;
    strike(&mut site, &traffic)?;
    let sent: Vec<u64> = traffic
        .into_iter()
        .map(Running::stop)
        .collect::<Result<_>>()?;
    for node in &site.nodes {
        close(node, "p");
    }
    close(&site.nodes[FEW], "few");
    println!("{}", site.send_all()?);
    let messages = site.messages()?;
    println!("{sent:?} packets in {} messages", messages.len());
    let of = |node: &str, probe: &str| {
        let subject = format!("twinprobe.{node}.{probe}");
        messages
            .iter()
            .filter(|message| message.subject == subject)
            .collect::<Vec<_>>()
    };
    for (name, sent) in ["node-0", "gw%2F1%2Eexample", "node-2"]
        .into_iter()
        .zip(&sent)
    {
        check_all(&of(name, "p"), *sent).with_context(|| name.to_owned())?;
    }
    check_few(&of(NODES[FEW], "few"), sent[FEW])
}

/// Each window is there once and in order, with the members of its shape.
fn check_all(messages: &[&Message], sent: u64) -> Result<()> {
    let packets: u64 = messages.iter().map(|message| message.packets).sum();
    ensure!(
        packets == sent,
        "{sent} were sent, {packets} are in {} messages",
        messages.len()
    );
    let wrong = (1..)
        .zip(messages)
        .find(|(seq, message)| message.first != *seq || message.gap > 0);
    ensure!(wrong.is_none(), "{wrong:?}");
    let mut shapes = BTreeMap::new();
    for Message { shape, members, .. } in messages {
        let known = shapes.entry(shape).or_insert(members);
        ensure!(
            *known == members,
            "shape {shape} has {known}, and {members}"
        );
    }
    ensure!((1..=LAYOUTS.len()).contains(&shapes.len()), "{shapes:?}");
    Ok(())
}

/// Each number belongs to a window or is in a gap, once and in order. The last window has the sum
/// of all packets.
fn check_few(messages: &[&Message], sent: u64) -> Result<()> {
    let (mut next, mut gaps) = (1, 0);
    for Message {
        first, last, gap, ..
    } in messages
    {
        ensure!(*first == next, "{first} after {}", next - 1);
        ensure!(
            *gap == 0 || *gap == last - first + 1,
            "{gap} windows from {first} to {last}"
        );
        gaps += u64::from(*gap > 0);
        next = last + 1;
    }
    println!("{gaps} gaps among {} windows", next - 1);
    ensure!(
        gaps > 0 || scaled(1, ROUNDS) < ROUNDS,
        "no window was missed"
    );
    let total = messages.last().context("windows")?.total;
    ensure!(total == sent, "{sent} were sent, the sum is {total}");
    Ok(())
}
