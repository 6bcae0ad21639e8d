//! Where the development node listens: always on this machine, at ports that one flag moves.

use std::net::{Ipv4Addr, SocketAddr};

/// The addresses of a development node. Port 0 lets the system choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Clients (QUIC).
    pub broker: SocketAddr,
    /// The broker's metrics and administration.
    pub broker_admin: SocketAddr,
    /// The control plane.
    pub controlplane: SocketAddr,
    /// The control plane's bootstrap listener, which mints tokens.
    pub bootstrap: SocketAddr,
    /// The control plane's metrics.
    pub controlplane_metrics: SocketAddr,
    /// Kafka clients.
    pub kafka: SocketAddr,
    /// The Kafka listener's metrics.
    pub kafka_admin: SocketAddr,
    /// Browsers.
    pub gateway: SocketAddr,
    /// The development identity provider.
    pub provider: SocketAddr,
}

/// How many ports a node has.
const PORTS: u16 = 9;

/// Why the ports cannot be where they were asked to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--port-base {base} leaves no room for {PORTS} ports below 65536")]
pub struct NoRoom {
    /// The base asked for.
    pub base: u16,
}

impl Ports {
    /// The well-known ports, or nine in a row from `base`, or any free ones when it is 0.
    ///
    /// # Errors
    /// When nine ports from `base` would run past 65535.
    pub fn choose(base: Option<u16>) -> Result<Self, NoRoom> {
        let [
            broker,
            broker_admin,
            controlplane,
            bootstrap,
            controlplane_metrics,
            kafka,
            kafka_admin,
            gateway,
            provider,
        ] = match base {
            None => [5000, 8080, 8443, 9095, 8081, 9092, 8082, 8787, 9400],
            Some(0) => [0; PORTS as usize],
            Some(base) => {
                base.checked_add(PORTS - 1).ok_or(NoRoom { base })?;
                std::array::from_fn(|place| base.saturating_add(place as u16))
            }
        }
        .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        Ok(Self {
            broker,
            broker_admin,
            controlplane,
            bootstrap,
            controlplane_metrics,
            kafka,
            kafka_admin,
            gateway,
            provider,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flag_moves_every_port() {
        let known = Ports::choose(None).expect("ports");
        assert_eq!(
            (known.broker.port(), known.controlplane.port()),
            (5000, 8443)
        );
        let moved = Ports::choose(Some(7000)).expect("ports");
        assert_eq!(moved.broker.port(), 7000);
        assert_eq!(moved.controlplane_metrics.port(), 7004);
        assert_eq!((known.kafka.port(), moved.kafka.port()), (9092, 7005));
        assert_eq!((known.gateway.port(), known.provider.port()), (8787, 9400));
        assert_eq!((moved.gateway.port(), moved.provider.port()), (7007, 7008));
        let free = Ports::choose(Some(0)).expect("ports");
        assert_eq!((free.broker.port(), free.bootstrap.port()), (0, 0));
        assert!(free.broker.ip().is_loopback());
    }

    #[test]
    fn a_base_at_the_very_end_is_refused() {
        assert!(Ports::choose(Some(65_527)).is_ok());
        assert_eq!(Ports::choose(Some(65_528)), Err(NoRoom { base: 65_528 }));
    }
}
