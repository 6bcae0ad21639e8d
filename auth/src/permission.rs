//! One grant: an action over an object.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::action::{Action, UnknownAction};
use crate::object::shape::Shape;
use crate::object::{BadObject, Object, cut};

/// A grant as tokens carry it, `action:object`, for example `cache.write:cache:t1/ns/state/room1/*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permission {
    /// What may be done.
    pub action: Action,
    /// To what.
    pub object: Object,
}

/// Why a text is not a permission.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPermission {
    /// There is no colon between an action and an object.
    #[error("a permission is written `action:object`")]
    NoColon,
    /// The verb is not known to this build.
    #[error(transparent)]
    Action(#[from] UnknownAction),
    /// The object does not follow the grammar.
    #[error(transparent)]
    Object(#[from] BadObject),
    /// A single key was named for an action that is not about keys.
    #[error("{action} takes no single key; only cache reads, writes, watches and counter adds do")]
    KeyForAction {
        /// The action.
        action: Action,
    },
}

impl Permission {
    /// Joins an action and an object, refusing pairs that mean nothing.
    ///
    /// # Errors
    /// [`BadPermission::KeyForAction`] when the object is a key and the action is not about keys.
    pub fn new(action: Action, object: Object) -> Result<Self, BadPermission> {
        fits(action, Shape::from(&object))?;
        Ok(Self { action, object })
    }
}

/// A grant as it stands in a text. In the order of [`Permission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grant<'a> {
    pub(crate) action: Action,
    pub(crate) object: Shape<'a>,
}

impl<'a> Grant<'a> {
    /// Reads `action:object`.
    pub(crate) fn parse(text: &'a str) -> Result<Self, BadPermission> {
        let (action, object) = cut(text, b':').ok_or(BadPermission::NoColon)?;
        let (action, object) = (action.parse()?, Shape::parse(object)?);
        fits(action, object)?;
        Ok(Self { action, object })
    }
}

impl<'a> From<&'a Permission> for Grant<'a> {
    fn from(permission: &'a Permission) -> Self {
        Self {
            action: permission.action,
            object: Shape::from(&permission.object),
        }
    }
}

fn fits(action: Action, object: Shape<'_>) -> Result<(), BadPermission> {
    if matches!(object, Shape::CacheKey { .. }) && !action.takes_keys() {
        return Err(BadPermission::KeyForAction { action });
    }
    Ok(())
}

impl FromStr for Permission {
    type Err = BadPermission;

    fn from_str(text: &str) -> Result<Self, BadPermission> {
        let Grant { action, object } = Grant::parse(text)?;
        let object = Object::from(object);
        Ok(Self { action, object })
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.action, self.object)
    }
}

impl Serialize for Permission {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Permission {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_reads_back_as_written() {
        for text in [
            "cache.write:cache:t1/ns/state/room1/*",
            "node.view:cluster:*",
        ] {
            assert_eq!(
                text.parse::<Permission>().map(|p| p.to_string()),
                Ok(text.to_owned())
            );
        }
    }

    #[test]
    fn a_key_is_refused_for_an_action_that_is_not_about_keys() {
        assert_eq!(
            "cache.manage:cache:t/ns/c/k".parse::<Permission>(),
            Err(BadPermission::KeyForAction {
                action: Action::CacheManage
            })
        );
    }
}
