//! Why somebody is not let in, in the words that every answer of the control plane comes down to.

use felix_controlplane_client::CallFailed;

/// What the control plane says to somebody whom it knows and whose roles give nothing of what he asks for: the one 403
/// that counts against nobody.
const NOTHING_LEFT: &str = "no permissions";

/// Why a join, a beacon or a request of the console is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// What was presented is no sign-in, or none any more.
    #[error("{0}")]
    SignedOut(String),
    /// Known, and not allowed.
    #[error("{0}")]
    Forbidden(String),
    /// It cannot be decided now.
    #[error("{0}")]
    Unavailable(String),
}

/// Why a session that was let in ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Ended {
    /// The person signed out, or the sign-in is over.
    #[error("signed out")]
    SignedOut,
    /// What the session rests on was taken away.
    #[error("no longer allowed")]
    Removed,
    /// The token ran out and no other could be had.
    #[error("the sign-in could not be renewed in time")]
    Expired,
}

/// How a call to the control plane failed, as far as a session is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// It decided.
    Decided(Refused),
    /// It did not take what was presented for a proof of who somebody is, and counts that against this gateway.
    NotAccepted(Refused),
    /// The gateway's own token was refused as that of an actor.
    ActorRefused,
    /// It cannot be reached: no connection, no answer, or somebody before it says so. `sent`: it may have acted.
    Away { sent: bool, why: String },
    /// It answered, and that decides nothing.
    Undecided(String),
}

impl Failed {
    pub(super) fn refused(self) -> Refused {
        match self {
            Self::Decided(refused) | Self::NotAccepted(refused) => refused,
            Self::ActorRefused => {
                Refused::Unavailable("the gateway may not act for people at the moment".into())
            }
            Self::Away { .. } => {
                Refused::Unavailable("signing in is not possible at the moment".into())
            }
            Self::Undecided(_) => {
                Refused::Unavailable("the sign-in could not be judged; try again".into())
            }
        }
    }
}

impl From<CallFailed> for Failed {
    fn from(failed: CallFailed) -> Self {
        let why = failed.to_string();
        match failed {
            CallFailed::Refused { status: 401, .. } => {
                Self::NotAccepted(Refused::SignedOut("the sign-in is not accepted".into()))
            }
            CallFailed::Refused {
                status: 403, code, ..
            } if code == "actor_refused" => Self::ActorRefused,
            CallFailed::Refused {
                status: 403,
                message,
                ..
            } if message == NOTHING_LEFT => Self::Decided(Refused::Forbidden(message)),
            CallFailed::Refused {
                status: 403,
                message,
                ..
            } => Self::NotAccepted(Refused::Forbidden(message)),
            CallFailed::Refused {
                status: 502..=504, ..
            }
            | CallFailed::Unreachable { .. } => Self::Away { sent: false, why },
            CallFailed::NoAnswer { .. } => Self::Away { sent: true, why },
            CallFailed::Refused { .. }
            | CallFailed::Malformed { .. }
            | CallFailed::TokenFile { .. } => Self::Undecided(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, code: &str) -> Failed {
        CallFailed::Refused {
            status,
            code: code.into(),
            message: "words".into(),
        }
        .into()
    }

    #[test]
    fn each_answer_of_an_exchange_comes_down_to_one_refusal() {
        assert!(matches!(
            status(401, "unauthenticated").refused(),
            Refused::SignedOut(_)
        ));
        assert_eq!(
            status(403, "forbidden").refused(),
            Refused::Forbidden("words".into())
        );
        assert_eq!(status(403, "actor_refused"), Failed::ActorRefused);
        assert!(matches!(status(403, "forbidden"), Failed::NotAccepted(_)));
        let nothing_left = CallFailed::Refused {
            status: 403,
            code: "forbidden".into(),
            message: NOTHING_LEFT.into(),
        };
        assert!(matches!(nothing_left.into(), Failed::Decided(_)));
        for (code, word) in [
            (409, "conflict"),
            (400, "invalid"),
            (429, "busy"),
            (500, "internal"),
        ] {
            assert!(matches!(status(code, word), Failed::Undecided(_)), "{code}");
            assert!(
                matches!(status(code, word).refused(), Refused::Unavailable(_)),
                "{code}"
            );
        }
        for code in [502, 503, 504] {
            assert!(
                matches!(status(code, "unavailable"), Failed::Away { .. }),
                "{code}"
            );
        }
    }
}
