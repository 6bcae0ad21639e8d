//! The rules for templates.

use felix_model::StreamName;
use felix_model::limits::NAME_BYTES_MAX;

use super::{Invalid, cache, range, stream, text};
use crate::limits::{ROOM_ITEMS_MAX, ROOM_SCOPE_BYTES_MAX, ROOMS_PER_TEMPLATE_MAX};
use crate::template::TemplateRecord;

pub(crate) fn template(template: &TemplateRecord) -> Result<(), Invalid> {
    StreamName::check(&template.template).map_err(Invalid::Name)?;
    StreamName::check(&template.prefix).map_err(Invalid::Name)?;
    let items = template.streams.len() + template.caches.len();
    range("items", items as u64, 1, ROOM_ITEMS_MAX as u64)?;
    range(
        "rooms_max",
        template.rooms_max.into(),
        1,
        ROOMS_PER_TEMPLATE_MAX.into(),
    )?;
    template.streams.iter().try_for_each(stream)?;
    template.caches.iter().try_for_each(cache)?;
    super::unique(template.streams.iter().map(|one| one.stream.as_str()))?;
    super::unique(template.caches.iter().map(|one| one.cache.as_str()))?;
    let streams = template.streams.iter().map(|one| one.stream.as_str());
    let caches = template.caches.iter().map(|one| one.cache.as_str());
    streams
        .chain(caches)
        .try_for_each(|name| item(&template.prefix, name))
}

/// The longest scope must still make a name.
fn item(prefix: &str, item: &str) -> Result<(), Invalid> {
    if item.contains('-') {
        return Err(Invalid::Contradiction(
            "the streams and caches of a template are named without `-`, which ends the scope in a room's names",
        ));
    }
    let found = prefix.len() + ROOM_SCOPE_BYTES_MAX + 1 + item.len();
    if found > NAME_BYTES_MAX {
        let field = "prefix";
        let limit = NAME_BYTES_MAX - ROOM_SCOPE_BYTES_MAX - 1;
        let found = prefix.len() + item.len();
        return Err(Invalid::TooLong {
            field,
            found,
            limit,
        });
    }
    Ok(())
}

/// As the gateway checks the scope of a join: 1 to 64 ASCII letters, digits, `_` and `-`.
pub(crate) fn room_scope(scope: &str) -> Result<(), Invalid> {
    text("scope", scope, ROOM_SCOPE_BYTES_MAX)?;
    if scope
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    {
        return Ok(());
    }
    Err(Invalid::Contradiction(
        "`scope` must be ASCII letters, digits, `_` and `-`",
    ))
}
