//! What is left after the power failed.

use std::collections::{BTreeMap, BTreeSet};

use super::Random;
use super::node::{Change, Node, NodeId};

/// The unit a disk writes whole.
pub(super) const SECTOR: usize = 512;

/// Leaves what the medium holds: all that was synced, and of the rest what the seed says.
pub(super) fn power_cut(nodes: &mut BTreeMap<NodeId, Node>, root: NodeId, random: &mut Random) {
    for node in nodes.values_mut() {
        match node {
            Node::File {
                now,
                medium,
                unsynced,
            } => {
                for change in unsynced.drain(..) {
                    settle(&change, medium, random);
                }
                now.clone_from(medium);
            }
            Node::Directory {
                now,
                medium,
                unsynced,
            } => {
                for link in unsynced.drain(..) {
                    if random.coin() {
                        link.apply(medium);
                    }
                }
                now.clone_from(medium);
            }
        }
    }
    forget_unnamed(nodes, root);
}

/// One unsynced change is kept, lost, or kept in part.
fn settle(change: &Change, medium: &mut Vec<u8>, random: &mut Random) {
    match random.below(4) {
        0 => {}
        1 => change.apply(medium),
        _ => tear(change, medium, random),
    }
}

/// Keeps a prefix, or some sectors and not others. The length may be on the medium although the bytes are not.
fn tear(change: &Change, medium: &mut Vec<u8>, random: &mut Random) {
    let Change::Write { position, bytes } = change else {
        return change.apply(medium);
    };
    let from = usize::try_from(*position).unwrap_or(usize::MAX);
    let end = from + bytes.len();
    if random.coin() {
        let mut kept = usize::try_from(random.below(bytes.len() as u64 + 1)).unwrap_or(0);
        // A sector that was there before is replaced whole or not at all; only a growing file can end anywhere.
        if from + kept < medium.len() {
            kept = ((from + kept) / SECTOR * SECTOR).saturating_sub(from);
        }
        let prefix = bytes.get(..kept).unwrap_or_default().to_vec();
        return Change::Write {
            position: *position,
            bytes: prefix,
        }
        .apply(medium);
    }
    if medium.len() < end && random.coin() {
        medium.resize(end, 0);
    }
    let mut at = from;
    while at < end {
        let next = ((at / SECTOR + 1) * SECTOR).min(end);
        if random.coin() {
            let part = bytes
                .get(at - from..next - from)
                .unwrap_or_default()
                .to_vec();
            Change::Write {
                position: at as u64,
                bytes: part,
            }
            .apply(medium);
        }
        at = next;
    }
}

/// A file whose name was lost is gone, whatever was synced into it.
fn forget_unnamed(nodes: &mut BTreeMap<NodeId, Node>, root: NodeId) {
    let mut named = BTreeSet::from([root]);
    let mut directories = vec![root];
    while let Some(id) = directories.pop() {
        let Some(Node::Directory { now, .. }) = nodes.get(&id) else {
            continue;
        };
        for id in now.values() {
            if named.insert(*id) {
                directories.push(*id);
            }
        }
    }
    nodes.retain(|id, _| named.contains(id));
}
