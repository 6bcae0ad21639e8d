//! Brokers that are broken on purpose, one for every rule that a checker holds.

/// One way to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twin {
    /// A cache answers some gets with what the key held before.
    StaleRead,
    /// A cache forgets the last record when it starts.
    ForgetLast,
    /// A cache writes whatever the condition says.
    IgnoreCondition,
    /// A cache never lets anything expire.
    IgnoreExpiry,
    /// A counter adds again what is sent again.
    AddAgain,
    /// A group says that a record is acknowledged and does not take note.
    DropAck,
    /// A group finishes some records without handing them out.
    SkipRecord,
    /// A group forgets how often a record was handed out.
    FreshAttempts,
    /// A group hands out a page from its end.
    BackToFront,
    /// A group's clock runs ahead, so that claims end early.
    EarlyLapse,
    /// Some commits change the state and leave no event.
    StateOnly,
    /// Some commits leave an event and do not change the state.
    EventOnly,
    /// A commit that is sent again is done again.
    CommitAgain,
    /// A coordinator acknowledges some positions before the log has them.
    CommitBeforeLog,
    /// A coordinator tells members of a generation and does not write it.
    ForgetGeneration,
    /// A coordinator gives some members a partition of another.
    TwoOwners,
    /// A coordinator forgets who is in a group in which it shares out when it starts.
    ForgetMembers,
    /// A coordinator tells some members of a partition before another gave it back.
    EarlyHandover,
}

impl Twin {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::StaleRead,
        Self::ForgetLast,
        Self::IgnoreCondition,
        Self::IgnoreExpiry,
        Self::AddAgain,
        Self::DropAck,
        Self::SkipRecord,
        Self::FreshAttempts,
        Self::BackToFront,
        Self::EarlyLapse,
        Self::StateOnly,
        Self::EventOnly,
        Self::CommitAgain,
        Self::CommitBeforeLog,
        Self::ForgetGeneration,
        Self::TwoOwners,
        Self::ForgetMembers,
        Self::EarlyHandover,
    ];
}
