//! ApiVersions: which requests are served in which versions. Written by hand, because clients read it before anything
//! is agreed, and some of them cannot read tagged fields that say what is so anyway.

use bytes::{BufMut, BytesMut};

use super::{Answer, Call, Head, Unreadable, answer_head, set_length};
use crate::wire::api::Api;
use crate::wire::codes::{NONE, UNSUPPORTED_VERSION};
use crate::wire::guard;

/// Answers in the version asked for, or, when that is not known, in version 0 with the error that says so: the client
/// finds the right one in the list and asks again.
///
/// # Errors
/// [`Unreadable`] when the request's bytes are not what the protocol says.
pub(crate) fn answer(call: &Call) -> Result<Answer, Unreadable> {
    let Head { api, version, .. } = call.head;
    let (error, version) = if api.serves(version) {
        guard::check(api, version, &call.body)?;
        (NONE, version)
    } else {
        (UNSUPPORTED_VERSION, 0)
    };
    let head = Head {
        version,
        ..call.head.clone()
    };
    let mut out = answer_head(&head, 16 + 7 * Api::ALL.len());
    out.put_i16(error);
    if version < 3 {
        plain(&mut out, version);
    } else {
        compact(&mut out);
    }
    let length = out.len() - 4;
    set_length(&mut out, length);
    Ok(Answer::of(out.freeze()))
}

fn plain(out: &mut BytesMut, version: i16) {
    out.put_u32(Api::ALL.len() as u32);
    for api in Api::ALL {
        put_range(out, *api);
    }
    if version >= 1 {
        out.put_i32(0);
    }
}

fn compact(out: &mut BytesMut) {
    // Fewer than 127 are served, so the count is one byte.
    out.put_u8((Api::ALL.len() + 1) as u8);
    for api in Api::ALL {
        put_range(out, *api);
        out.put_u8(0);
    }
    out.put_i32(0);
    // No tagged fields: older librdkafka stumbles over them, and there are no features to tell of.
    out.put_u8(0);
}

fn put_range(out: &mut BytesMut, api: Api) {
    let (min, max) = api.versions();
    out.put_i16(api.key());
    out.put_i16(min);
    out.put_i16(max);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn ask(version: i16, body: &'static [u8]) -> Bytes {
        let call = Call {
            head: Head {
                api: Api::ApiVersions,
                version,
                correlation: 7,
                client_id: Bytes::new(),
            },
            body: Bytes::from_static(body),
        };
        answer(&call).unwrap().parts.remove(0)
    }

    #[test]
    fn an_unknown_version_is_answered_in_version_0_with_the_list() {
        let answer = ask(9, b"whatever");
        assert_eq!(&answer[4..8], &7_i32.to_be_bytes());
        assert_eq!(&answer[8..10], &UNSUPPORTED_VERSION.to_be_bytes());
        let count = u32::from_be_bytes(answer[10..14].try_into().unwrap()) as usize;
        assert_eq!(count, Api::ALL.len());
        assert_eq!(answer.len(), 14 + 6 * count);
        let own = [0, 18, 0, 0, 0, 4];
        assert!(answer[14..].chunks(6).any(|range| range == own));
    }

    #[test]
    fn the_compact_form_has_no_tags_and_an_old_header() {
        let answer = ask(3, b"\x02a\x021\0");
        assert_eq!(
            u32::from_be_bytes(answer[..4].try_into().unwrap()) as usize,
            answer.len() - 4
        );
        assert_eq!(&answer[8..10], &NONE.to_be_bytes());
        assert_eq!(usize::from(answer[10]), Api::ALL.len() + 1);
        assert_eq!(answer.len(), 11 + 7 * Api::ALL.len() + 5);
        assert_eq!(answer.last(), Some(&0));
    }

    #[test]
    fn a_software_name_longer_than_the_request_is_refused() {
        let call = Call {
            head: Head {
                api: Api::ApiVersions,
                version: 3,
                correlation: 7,
                client_id: Bytes::new(),
            },
            body: Bytes::from_static(b"\xff\xff\xff\xff\x0f"),
        };
        assert!(answer(&call).is_err());
    }
}
