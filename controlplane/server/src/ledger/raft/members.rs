//! Who belongs to the cluster: forming it, changing it, and taking in a member whose disk is another one.
//!
//! A voter counts as the disk that the membership names. One that comes back empty has forgotten for whom it voted and what
//! it holds, so it is let go by a change of the membership, which a majority of the others commits, and then taken in like
//! a new one: as a learner first, and as a voter once it holds everything that was committed when the leader first heard
//! it. That it is to come back is written beside the leader's own record before, so that the next leader goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::error::{ChangeMembershipError, ClientWriteError, RaftError};
use serde::Serialize;
use tokio::time::{sleep, timeout};

use super::core::{Core, Metrics};
use super::message::{Ask, Change, Here, Refused, Said};
use super::network::PeerFailed;
use super::transport::Peer;
use super::types::{Member, StorageId};

type Changes = ChangeMembers<u64, Member>;

/// Longest a change of the membership may take before it is looked at again.
const CHANGE_MAX: Duration = Duration::from_secs(5);

/// How long a member has to say who it is.
const HELLO_MAX: Duration = Duration::from_secs(1);

/// Bytes of records after which they are written down.
const UNWRITTEN_BYTES: u64 = 32 * 1024 * 1024;

/// A member in a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its number.
    pub member: u64,
    /// Its peer address; empty for a voter that is alone.
    pub address: String,
    /// Its disk; none for one that is expected and was not heard.
    pub storage: Option<StorageId>,
    /// `voter`, `learner`, or `expected`.
    pub role: &'static str,
    /// Whether it leads, as far as known here.
    pub leads: bool,
    /// Entries of the raft log it holds; known only where the leader is asked.
    pub holds: Option<u64>,
}

/// What a leader remembers between two looks.
#[derive(Debug, Default)]
struct Heard {
    /// Learners, and the first entry not committed when each was first seen.
    learners: BTreeMap<u64, u64>,
}

impl Core {
    /// Looks after the members until this one stops.
    pub(crate) async fn keep(self: Arc<Self>) {
        let mut heard = Heard::default();
        let every = self.options.timing.heartbeat * 2;
        loop {
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return,
                () = sleep(every) => {}
            }
            self.write_down_in_time().await;
            if self.voters().is_empty() {
                self.form().await;
                continue;
            }
            if !self.leads() {
                heard = Heard::default();
                self.caller.take_strangers();
                continue;
            }
            if let Err(error) = self.look_after(&mut heard).await {
                tracing::warn!(%error, "the members could not be changed; it is tried again");
            }
        }
    }

    /// Has it written down how far the records go when much was added, however few entries that were. After a crash
    /// everything behind that is applied again, and openraft reads it at once.
    async fn write_down_in_time(&self) {
        let much = self.records.held().unwritten >= UNWRITTEN_BYTES;
        if much && let Err(error) = self.raft.trigger().snapshot().await {
            tracing::debug!(%error, "the records were not written down");
        }
    }

    /// Makes the first membership.
    pub(crate) async fn initialize(&self, members: BTreeMap<u64, Member>) -> Result<(), String> {
        self.raft
            .initialize(members)
            .await
            .map_err(|error| error.to_string())
    }

    /// Forms a new cluster, if this member is told to, is the first of those that would, and all of them are there, each on
    /// a disk on which nothing was promised yet.
    async fn form(&self) {
        let peers = &self.options.peers;
        let first = peers.keys().next() == Some(&self.options.member);
        if !self.options.forms || !first || !self.log.is_blank() {
            return;
        }
        let mut members = BTreeMap::from([(self.options.member, self.own_record())]);
        for (member, address) in peers
            .iter()
            .filter(|(member, _)| **member != self.options.member)
        {
            let peer = Peer {
                member: *member,
                address: address.clone(),
            };
            let here = match self.hello(&peer).await {
                Ok(here) => here,
                Err(error) => {
                    tracing::info!(%error, "waiting for the members of the new cluster");
                    return;
                }
            };
            if !here.blank || here.forms.as_ref() != Some(peers) {
                tracing::warn!(
                    member,
                    "a member is not new, or was told of other members: no cluster is formed"
                );
                return;
            }
            let record = Member {
                address: address.clone(),
                storage: here.storage,
                expects: BTreeMap::new(),
            };
            members.insert(*member, record);
        }
        tracing::info!(members = members.len(), "forming a new cluster");
        if let Err(error) = self.initialize(members).await {
            tracing::warn!(%error, "the cluster was not formed");
        }
    }

    pub(crate) async fn hello(&self, peer: &Peer) -> Result<Here, PeerFailed> {
        let asked = self.caller.ask(peer, None, Ask::Hello, &[], HELLO_MAX);
        let said = asked.await?;
        if let Said::Here(here) = said {
            return Ok(here);
        }
        Err(super::network::nonsense(peer.member, &said))
    }

    /// One look of a leader: the first thing that is to be done is done.
    async fn look_after(&self, heard: &mut Heard) -> Result<(), Refused> {
        let metrics = self.metrics();
        let stored = &metrics.membership_config;
        let reach = self.reach();
        if reach.applied < *stored.log_id() {
            return Ok(());
        }
        let membership = stored.membership();
        if let [_, goal] = membership.get_joint_config().as_slice() {
            // The leader that began this change did not come to its end.
            return self
                .change(ChangeMembers::ReplaceAllVoters(goal.clone()))
                .await;
        }
        let nodes: BTreeMap<u64, Member> = membership
            .nodes()
            .map(|(id, node)| (*id, node.clone()))
            .collect();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        let Some(own) = nodes.get(&self.options.member) else {
            return Ok(());
        };
        let address = self.own_record().address;
        if !address.is_empty() && own.address != address {
            let record = Member {
                address,
                ..own.clone()
            };
            return self.set_own(record).await;
        }
        let expected: BTreeMap<u64, String> = nodes
            .values()
            .flat_map(|node| node.expects.clone())
            .collect();
        let strangers = self.caller.take_strangers();
        for (member, found) in strangers {
            if nodes.get(&member).is_some_and(|node| node.storage != found) {
                return self.let_go(member, &nodes, &voters, &expected, own).await;
            }
        }
        for (member, address) in &expected {
            if voters.contains(member) {
                return self.forget_expected(*member, &nodes).await;
            }
            if nodes.contains_key(member) {
                if self.holds_enough(*member, &metrics, heard) {
                    let voter = BTreeSet::from([*member]);
                    return self.change(ChangeMembers::AddVoterIds(voter)).await;
                }
                continue;
            }
            heard.learners.remove(member);
            self.take_in(*member, address).await?;
        }
        Ok(())
    }

    /// Whether a learner holds everything that was committed when it was first seen by this leader.
    fn holds_enough(&self, member: u64, metrics: &Metrics, heard: &mut Heard) -> bool {
        let upto = *heard
            .learners
            .entry(member)
            .or_insert_with(|| self.reach().next_index());
        let holds = metrics
            .replication
            .as_ref()
            .and_then(|replication| replication.get(&member));
        holds.is_some_and(|holds| holds.is_some_and(|last| last.index + 1 >= upto))
    }

    /// Lets a member go whose disk is another one, after writing down that it is to come back.
    async fn let_go(
        &self,
        member: u64,
        nodes: &BTreeMap<u64, Member>,
        voters: &BTreeSet<u64>,
        expected: &BTreeMap<u64, String>,
        own: &Member,
    ) -> Result<(), Refused> {
        tracing::warn!(
            member,
            "a member is on another disk; it does not count until it is taken in again"
        );
        let Some(node) = nodes.get(&member) else {
            return Ok(());
        };
        if !expected.contains_key(&member) {
            let mut own = own.clone();
            own.expects.insert(member, node.address.clone());
            self.set_own(own).await?;
        }
        let gone = BTreeSet::from([member]);
        self.change(match voters.contains(&member) {
            true => ChangeMembers::RemoveVoters(gone),
            false => ChangeMembers::RemoveNodes(gone),
        })
        .await
    }

    /// Makes an expected member a learner, on the disk that it is on now.
    async fn take_in(&self, member: u64, address: &str) -> Result<(), Refused> {
        let peer = Peer {
            member,
            address: address.to_owned(),
        };
        let here = match self.hello(&peer).await {
            Ok(here) => here,
            Err(error) => {
                tracing::debug!(%error, "an expected member is not there yet");
                return Ok(());
            }
        };
        let record = Member {
            address: peer.address,
            storage: here.storage,
            expects: BTreeMap::new(),
        };
        self.change(ChangeMembers::AddNodes(BTreeMap::from([(member, record)])))
            .await
    }

    /// Strikes a member that is here from what is expected.
    async fn forget_expected(
        &self,
        member: u64,
        nodes: &BTreeMap<u64, Member>,
    ) -> Result<(), Refused> {
        let changed = nodes
            .iter()
            .filter(|(_, node)| node.expects.contains_key(&member));
        let changed = changed.map(|(id, node)| {
            let mut node = node.clone();
            node.expects.remove(&member);
            (*id, node)
        });
        let changed: BTreeMap<u64, Member> = changed.collect();
        match changed.is_empty() {
            true => Ok(()),
            false => self.change(ChangeMembers::SetNodes(changed)).await,
        }
    }

    async fn set_own(&self, record: Member) -> Result<(), Refused> {
        let own = BTreeMap::from([(self.options.member, record)]);
        self.change(ChangeMembers::SetNodes(own)).await
    }

    /// Changes the membership, by way of a joint one where voters change, and waits until that is committed.
    async fn change(&self, changes: Changes) -> Result<(), Refused> {
        match timeout(CHANGE_MAX, self.raft.change_membership(changes, false)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(to)))) => {
                let leader = to.leader_id;
                Err(Refused::NotLeader { leader })
            }
            Ok(Err(RaftError::APIError(ClientWriteError::ChangeMembershipError(error)))) => {
                let code = match &error {
                    ChangeMembershipError::InProgress(_) => "busy",
                    ChangeMembershipError::EmptyMembership(_) => "last_voter",
                    ChangeMembershipError::LearnerNotFound(_) => "unknown_member",
                };
                Err(Refused::not(code, error))
            }
            Ok(Err(error)) => Err(Refused::unknown(error)),
            Err(_) => Err(Refused::unknown("a majority did not answer in time")),
        }
    }

    /// Changes the members as the leader, if this is it. One change at a time.
    pub(crate) async fn change_here(&self, change: Change) -> Result<(), Refused> {
        let leader = self.leader();
        if leader != Some(self.options.member) {
            return Err(Refused::NotLeader { leader });
        }
        let stored = self.metrics().membership_config;
        let membership = stored.membership();
        if membership.get_joint_config().len() > 1 || self.reach().applied < *stored.log_id() {
            return Err(Refused::not(
                "busy",
                "another change of the members is under way",
            ));
        }
        let nodes: BTreeMap<u64, Member> = membership
            .nodes()
            .map(|(id, node)| (*id, node.clone()))
            .collect();
        let voters: BTreeSet<u64> = membership.voter_ids().collect();
        match change {
            Change::Add { member, address } => self.add_here(member, address, &nodes).await,
            Change::Remove { member } => self.remove_here(member, &nodes, &voters).await,
        }
    }

    async fn add_here(
        &self,
        member: u64,
        address: String,
        nodes: &BTreeMap<u64, Member>,
    ) -> Result<(), Refused> {
        let Some(own) = nodes.get(&self.options.member) else {
            return Err(Refused::not("busy", "this leader is leaving"));
        };
        if own.address.is_empty() {
            return Err(Refused::not(
                "no_peers",
                "this member has no peer listener: configure raft_peers, raft_bind_addr and raft_peer_token first",
            ));
        }
        let peer = Peer { member, address };
        let here = self
            .hello(&peer)
            .await
            .map_err(|error| Refused::not("unreachable", error))?;
        if let Some(node) = nodes.get(&member) {
            if node.storage != here.storage {
                return Err(Refused::not(
                    "unknown_member",
                    format!("member {member} is there already, on another disk; remove it first"),
                ));
            }
            let record = Member {
                address: peer.address,
                ..node.clone()
            };
            return self
                .change(ChangeMembers::SetNodes(BTreeMap::from([(member, record)])))
                .await;
        }
        if !here.blank {
            return Err(Refused::not(
                "not_empty",
                format!(
                    "member {member} has a ledger already; empty its directory before it is taken in"
                ),
            ));
        }
        let mut own = own.clone();
        own.expects.insert(member, peer.address);
        self.set_own(own).await
    }

    async fn remove_here(
        &self,
        member: u64,
        nodes: &BTreeMap<u64, Member>,
        voters: &BTreeSet<u64>,
    ) -> Result<(), Refused> {
        if voters.len() == 1 && voters.contains(&member) {
            return Err(Refused::not(
                "last_voter",
                "the last voter cannot be removed",
            ));
        }
        let expected = nodes
            .values()
            .any(|node| node.expects.contains_key(&member));
        if !expected && !nodes.contains_key(&member) {
            return Err(Refused::not(
                "unknown_member",
                format!("there is no member {member}"),
            ));
        }
        // What it expects must not go with it.
        if let Some(expects) = nodes.get(&member).map(|node| node.expects.clone())
            && let Some((heir, node)) = nodes
                .iter()
                .find(|(id, _)| **id != member && voters.contains(id))
            && !expects.is_empty()
        {
            let mut node = node.clone();
            node.expects.extend(expects);
            self.change(ChangeMembers::SetNodes(BTreeMap::from([(*heir, node)])))
                .await?;
        }
        if expected {
            self.forget_expected(member, nodes).await?;
        }
        let gone = BTreeSet::from([member]);
        if voters.contains(&member) {
            return self.change(ChangeMembers::RemoveVoters(gone)).await;
        }
        match nodes.contains_key(&member) {
            true => self.change(ChangeMembers::RemoveNodes(gone)).await,
            false => Ok(()),
        }
    }

    /// Changes the members, wherever the leader is.
    ///
    /// # Errors
    /// [`Refused`]; only `Unknown` leaves open whether it was done.
    pub async fn change_members(&self, change: Change) -> Result<(), Refused> {
        let leader = self.leader().ok_or(Refused::NotLeader { leader: None })?;
        if leader == self.options.member {
            return self.change_here(change).await;
        }
        let peer = self
            .peer(leader)
            .ok_or(Refused::NotLeader { leader: None })?;
        let wait = CHANGE_MAX + HELLO_MAX;
        match self
            .caller
            .ask(&peer, None, Ask::Change(change), &[], wait)
            .await
        {
            Ok(Said::Changed) => Ok(()),
            Ok(said) => Err(Refused::unknown(super::network::nonsense(leader, &said))),
            Err(PeerFailed::Refused(refused)) => Err(refused),
            Err(error) => Err(Refused::unknown(error)),
        }
    }

    /// The members, as this one knows them.
    #[must_use]
    pub fn members(&self) -> Vec<Listed> {
        let metrics = self.metrics();
        let stored = &metrics.membership_config;
        let voters: BTreeSet<u64> = stored.voter_ids().collect();
        let leader = metrics.current_leader;
        let mut expected = BTreeMap::new();
        let mut listed: BTreeMap<u64, Listed> = BTreeMap::new();
        for (member, node) in stored.nodes() {
            expected.extend(node.expects.clone());
            let replication = metrics.replication.as_ref();
            let holds = replication.and_then(|replication| replication.get(member));
            let row = Listed {
                member: *member,
                address: node.address.clone(),
                storage: Some(node.storage),
                role: if voters.contains(member) {
                    "voter"
                } else {
                    "learner"
                },
                leads: leader == Some(*member),
                holds: holds.map(|last| last.map_or(0, |last| last.index + 1)),
            };
            listed.insert(*member, row);
        }
        for (member, address) in expected {
            listed.entry(member).or_insert(Listed {
                member,
                address,
                storage: None,
                role: "expected",
                leads: false,
                holds: None,
            });
        }
        listed.into_values().collect()
    }
}
