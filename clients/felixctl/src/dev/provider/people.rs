//! Who can sign in: three people with names, and anybody else under the name he types.

/// Group of everybody.
pub(in crate::dev) const PEOPLE: &str = "people";
/// Group of those who may also administer.
pub(in crate::dev) const ADMINS: &str = "admins";

/// Who is offered by name. The first one administers.
pub(super) const KNOWN: [&str; 3] = ["Ada", "Grace", "Linus"];

/// Characters of a name at most.
const NAME_CHARS_MAX: usize = 64;

/// Somebody who signs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Person {
    name: String,
}

/// Why a name is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a name has 1 to {NAME_CHARS_MAX} letters, digits, spaces, `.`, `-` and `_`, and a letter or digit first"
)]
pub(super) struct BadPerson;

impl Person {
    /// The person of a name. Spaces around it and the case of a known name do not matter.
    pub(super) fn named(name: &str) -> Result<Self, BadPerson> {
        let name = name.trim();
        let allowed = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '.' | '-' | '_');
        let first = name.chars().next().is_some_and(char::is_alphanumeric);
        if !first || !name.chars().all(allowed) || name.chars().count() > NAME_CHARS_MAX {
            return Err(BadPerson);
        }
        let known = KNOWN.iter().find(|known| known.eq_ignore_ascii_case(name));
        let name = known.map_or(name, |known| known).to_owned();
        Ok(Self { name })
    }

    /// His name for people.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// What identifies him: his name in small letters, with `-` for spaces.
    pub(super) fn subject(&self) -> String {
        self.name.to_lowercase().replace(' ', "-")
    }

    /// An address that nobody has: `example.com` is kept for such.
    pub(super) fn email(&self) -> String {
        format!("{}@example.com", self.subject())
    }

    /// His groups.
    pub(super) fn groups(&self) -> Vec<&'static str> {
        match KNOWN.first() {
            Some(first) if *first == self.name => vec![PEOPLE, ADMINS],
            _ => vec![PEOPLE],
        }
    }
}
