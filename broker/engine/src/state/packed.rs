//! The values that one commit wrote, in one piece of memory.
//!
//! ```text
//! for each put in order: key length u32 | value length u32 | key | value        (big-endian)
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use felix_model::forms::Change;

const LENGTHS: usize = 8;

/// Packs the values of a commit; `None` when it wrote none.
pub(super) fn pack(changes: &[Change]) -> Option<Bytes> {
    let puts = || {
        changes.iter().filter_map(|change| match change {
            Change::Put { key, value } => Some((key, value)),
            Change::Delete { .. } => None,
        })
    };
    let bytes: usize = puts()
        .map(|(key, value)| LENGTHS + key.len() + value.len())
        .sum();
    if bytes == 0 {
        return None;
    }
    let mut packed = BytesMut::with_capacity(bytes);
    for (key, value) in puts() {
        packed.put_u32(u32::try_from(key.len()).ok()?);
        packed.put_u32(u32::try_from(value.len()).ok()?);
        packed.put_slice(key);
        packed.put_slice(value);
    }
    Some(packed.freeze())
}

/// The value that a commit left a key with, if it put it.
pub(super) fn find(packed: &Bytes, wanted: &[u8]) -> Option<Bytes> {
    let mut rest = packed.clone();
    let mut found = None;
    while rest.len() >= LENGTHS {
        let key = rest.get_u32() as usize;
        let value = rest.get_u32() as usize;
        if rest.len() < key.saturating_add(value) {
            break;
        }
        let key = rest.split_to(key);
        let value = rest.split_to(value);
        if key == wanted {
            found = Some(value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &'static str, value: &'static str) -> Change {
        Change::Put {
            key: key.into(),
            value: value.into(),
        }
    }

    #[test]
    fn the_last_value_of_a_key_counts() {
        let deleted = Change::Delete { key: "x".into() };
        let packed = pack(&[put("a", "1"), deleted.clone(), put("", ""), put("a", "2")]).unwrap();
        assert_eq!(find(&packed, b"a").unwrap(), "2");
        assert_eq!(find(&packed, b"").unwrap(), "");
        assert_eq!(find(&packed, b"x"), None);
        assert_eq!(pack(&[deleted]), None);
    }
}
