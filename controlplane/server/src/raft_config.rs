//! What the configuration says about a raft ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{Config, ConfigRefused, RaftState, StorageBackend};
use crate::ledger::raft::peers::{PeerSecurity, PeerToken, TOKEN_CHARS_MIN, TlsFiles};
use crate::ledger::raft::{Draw, Layout, MemberOptions, PeerOptions, Timing};

/// Most members. More make every append wait for more, and survive no more than five do.
const MEMBERS_MAX: usize = 7;

fn contradiction<T>(text: impl Into<String>) -> Result<T, ConfigRefused> {
    Err(ConfigRefused::Contradiction(text.into()))
}

/// Checks that the values go together.
pub(crate) fn check(config: &Config) -> Result<(), ConfigRefused> {
    if config.backend() != StorageBackend::Raft {
        return match config.raft_peers.is_empty() {
            true => Ok(()),
            false => contradiction("raft_peers needs storage_backend = \"raft\""),
        };
    }
    let peers = peers(&config.raft_peers)?;
    let security = security(config)?;
    if peers.is_empty() {
        return match config.raft_initial_cluster_state {
            RaftState::Existing => Ok(()),
            RaftState::New => {
                contradiction("raft_initial_cluster_state = \"new\" needs raft_peers")
            }
        };
    }
    if !peers.contains_key(&config.raft_node_id) {
        return contradiction(format!(
            "raft_peers has no member {}, which raft_node_id says this is",
            config.raft_node_id
        ));
    }
    if security.token.is_none() && security.tls.is_none() {
        return contradiction(
            "raft_peers needs raft_peer_token_file (or raft_peer_token), or raft_tls_cert, raft_tls_key and raft_tls_ca: \
             whoever reaches the peer listener could write the ledger",
        );
    }
    Ok(())
}

/// The members and their addresses.
fn peers(text: &str) -> Result<BTreeMap<u64, String>, ConfigRefused> {
    let mut peers = BTreeMap::new();
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let parsed = part.split_once('=').and_then(|(member, address)| {
            let (host, port) = address.rsplit_once(':')?;
            let is_good = !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0);
            let member: u64 = member.trim().parse().ok().filter(|member| *member > 0)?;
            is_good.then(|| (member, address.trim().to_owned()))
        });
        let Some((member, address)) = parsed else {
            return contradiction(format!("raft_peers: `{part}` is not like `1=host:8444`"));
        };
        if peers.values().any(|known| *known == address) || peers.insert(member, address).is_some()
        {
            return contradiction(format!("raft_peers: `{part}` is there twice"));
        }
    }
    if peers.len() > MEMBERS_MAX {
        return contradiction(format!(
            "raft_peers: {} members, at most {MEMBERS_MAX}",
            peers.len()
        ));
    }
    Ok(peers)
}

fn security(config: &Config) -> Result<PeerSecurity, ConfigRefused> {
    let token = match config.raft_peer_token.is_empty() {
        true => None,
        false => match PeerToken::new(&config.raft_peer_token.0) {
            Ok(token) => Some(token),
            Err(chars) => {
                return contradiction(format!(
                    "raft_peer_token has {chars} characters; it needs at least {TOKEN_CHARS_MIN}"
                ));
            }
        },
    };
    let files = (
        &config.raft_tls_cert,
        &config.raft_tls_key,
        &config.raft_tls_ca,
    );
    let tls = match files {
        (None, None, None) => None,
        (Some(cert), Some(key), Some(ca)) => Some(TlsFiles {
            cert: cert.clone(),
            key: key.clone(),
            ca: ca.clone(),
        }),
        _ => return contradiction("raft_tls_cert, raft_tls_key and raft_tls_ca go together"),
    };
    Ok(PeerSecurity { token, tls })
}

/// The member that a configuration means, and how it meets the others.
pub(crate) fn member(
    config: &Config,
) -> Result<(MemberOptions, Option<PeerOptions>), ConfigRefused> {
    let peers = peers(&config.raft_peers)?;
    let met = (!peers.is_empty()).then(|| {
        Ok::<_, ConfigRefused>(PeerOptions {
            bind: config.raft_bind_addr,
            security: security(config)?,
        })
    });
    let options = MemberOptions {
        cluster: config.cluster_id.clone(),
        member: config.raft_node_id,
        peers,
        forms: config.raft_initial_cluster_state == RaftState::New,
        timing: Timing::default(),
        layout: Layout::default(),
        draw: draw(),
    };
    Ok((options, met.transpose()?))
}

/// Numbers from the operating system.
fn draw() -> Draw {
    Arc::new(|| {
        let mut bytes = [0; 8];
        if getrandom::fill(&mut bytes).is_err() {
            tracing::error!("the operating system has no random numbers");
            std::process::abort();
        }
        u64::from_le_bytes(bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn with(peers: &str, token: &str) -> Config {
        Config {
            raft_peers: peers.into(),
            raft_peer_token: Secret(token.into()),
            ..Config::default()
        }
    }

    #[test]
    fn a_data_directory_and_nothing_more_means_a_raft_member_that_is_alone() {
        let config = Config::default();
        config.check().unwrap();
        assert_eq!(config.backend(), StorageBackend::Raft);
        let (options, peers) = member(&config).unwrap();
        assert!(options.peers.is_empty());
        assert!(peers.is_none());
    }

    #[test]
    fn values_of_a_raft_ledger_that_do_not_go_together_are_refused_with_words() {
        let cases = [
            (
                with("1=a:1,2=b:1", ""),
                "raft_peers needs raft_peer_token_file",
            ),
            (
                with("1=a:1,2=b:1", "short"),
                "has 5 characters; it needs at least 32",
            ),
            (with("2=b:1", TOKEN), "raft_peers has no member 1"),
            (with("1=a:1,1=b:1", TOKEN), "`1=b:1` is there twice"),
            (with("1=a:1,2=a:1", TOKEN), "`2=a:1` is there twice"),
            (with("a:1", TOKEN), "`a:1` is not like `1=host:8444`"),
            (with("1=a", TOKEN), "`1=a` is not like"),
            (with("0=a:1", TOKEN), "`0=a:1` is not like"),
            (
                Config {
                    raft_initial_cluster_state: RaftState::New,
                    ..Config::default()
                },
                "\"new\" needs raft_peers",
            ),
            (
                Config {
                    raft_tls_cert: Some("a".into()),
                    ..with("1=a:1", TOKEN)
                },
                "go together",
            ),
        ];
        for (config, expected) in cases {
            let refused = config.check().unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
        with("1=a:1,2=b:1,3=c:1", TOKEN).check().unwrap();
    }
}
