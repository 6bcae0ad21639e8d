//! What the fuzz target `batch` does with its input. Included by the replay test and by the fuzz crate,
//! so both run the same.

use bytes::Bytes;
use felix_model::batch::{
    BatchBuilder, BatchHeader, BatchOptions, BatchRefused, BuildRefused, HEADER_BYTES, Records,
    patch, verify, verify_checksum, verify_from_client,
};
use felix_model::native::{
    InternalHeaders, Payloads, Times, digest_from_records, internal_headers, payload_digest,
    payloads_from_records, records_from_payloads,
};
use felix_model::{Generation, Offset};

/// Whatever the bytes are, nothing panics and all ways of reading them agree.
pub(crate) fn run(data: &[u8]) {
    read(data);
    if let Some(sealed) = seal(data) {
        read(&sealed);
    }
    payload_list(data);
}

/// The bytes with the version, length and checksum of a batch, so that the inside is reached.
fn seal(data: &[u8]) -> Option<Vec<u8>> {
    let mut batch = data.to_vec();
    let length = i32::try_from(batch.len().checked_sub(12)?).ok()?;
    let _ = batch.get(..HEADER_BYTES)?;
    batch.get_mut(8..12)?.copy_from_slice(&length.to_be_bytes());
    *batch.get_mut(16)? = 2;
    let crc = crc32c::crc32c(batch.get(21..)?);
    batch.get_mut(17..21)?.copy_from_slice(&crc.to_be_bytes());
    Some(batch)
}

fn read(data: &[u8]) {
    let bytes = Bytes::copy_from_slice(data);
    let parsed = BatchHeader::parse(data);
    let shallow = verify_checksum(data);
    let deep = verify(data);
    let client = verify_from_client(data);
    // Each depth accepts no more than the one before.
    assert!(shallow.is_err() || parsed.is_ok());
    assert!(deep.is_err() || shallow.is_ok());
    assert!(client.is_err() || deep.is_ok());

    let records = read_records(&bytes);
    let runs = read_runs(&bytes);
    let _ = internal_headers(data);
    let digest = digest_from_records(&bytes);
    if let Ok(header) = &deep {
        let (count, values) = records.expect("a verified batch can be read");
        assert_eq!(count, header.records());
        let (payloads, of_runs) = runs.expect("a verified batch can be read");
        if !header.is_control() {
            assert_eq!(payloads, header.records());
            assert_eq!(values, of_runs);
        }
        assert_eq!(digest, Ok(values));
        patched(data, header);
        rebuilt(&bytes, header);
    }
}

/// How many records there are, and the digest of their values.
fn read_records(bytes: &Bytes) -> Result<(u32, u64), BatchRefused> {
    let mut count = 0;
    let mut values = Vec::new();
    let mut next = None;
    for record in Records::new(bytes)? {
        let record = record?;
        assert!(Some(record.offset) >= next, "offsets rise");
        next = Some(record.offset.plus(1));
        assert_eq!(record.headers.iter().count(), record.headers.len());
        assert_eq!(record.internal.iter().count(), record.internal.len());
        values.push(record.value.unwrap_or_default());
        count += 1;
    }
    Ok((count, payload_digest(values.iter().map(AsRef::as_ref))))
}

/// The same by way of the payload lists.
fn read_runs(bytes: &Bytes) -> Result<(u32, u64), BatchRefused> {
    let mut count = 0;
    let mut lists = Vec::new();
    let mut next = None;
    for run in payloads_from_records(bytes, Offset::ZERO)? {
        let run = run?;
        assert!(Some(run.base) > next || next.is_none(), "runs are apart");
        next = Some(run.end());
        assert_eq!(
            Payloads::parse(run.payloads.bytes.clone()).as_ref(),
            Ok(&run.payloads)
        );
        if let Times::Each(times) = &run.times {
            assert_eq!(times.len(), run.payloads.count as usize);
        }
        count += run.payloads.count;
        lists.push(run.payloads);
    }
    Ok((count, payload_digest(lists.iter().flatten())))
}

fn patched(data: &[u8], before: &BatchHeader) {
    let mut batch = data.to_vec();
    patch(&mut batch, Offset(77), Generation(3));
    let after = verify(&batch).expect("patching touches nothing under the checksum");
    assert_eq!(after.base(), Offset(77));
    assert_eq!(after.generation(), Some(Generation(3)));
    assert_eq!(after.crc, before.crc);
}

/// What was read can be written again, and is then as good as what a client sends.
fn rebuilt(bytes: &Bytes, header: &BatchHeader) {
    let mut builder = BatchBuilder::new(BatchOptions::default());
    for record in Records::new(bytes).expect("it was read before") {
        let record = record.expect("it was read before");
        let headers: Vec<_> = record.headers.iter().collect();
        let headers: Vec<(&[u8], Option<&[u8]>)> = headers
            .iter()
            .map(|(key, value)| (&**key, value.as_deref()))
            .collect();
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        match builder.push(record.timestamp_ms, key, value, &headers) {
            Ok(()) => {}
            // Two times may be further apart than one delta reaches.
            Err(BuildRefused::Time { .. }) => return,
            Err(why) => panic!("{why}"),
        }
    }
    match builder.finish() {
        Ok(batch) => {
            let again = verify_from_client(&batch).expect("we accept what we make");
            assert_eq!(again.records(), header.records());
        }
        Err(why) => assert_eq!((why, header.records()), (BuildRefused::Empty, 0)),
    }
}

/// The bytes as a payload list: if it is one, it survives the way through the log.
fn payload_list(data: &[u8]) {
    let Ok(payloads) = Payloads::parse(Bytes::copy_from_slice(data)) else {
        return;
    };
    assert!(payloads.bytes.len() <= data.len());
    assert_eq!(payloads.iter().count(), payloads.count as usize);
    let key = data.get(..data.len().min(9));
    let none = InternalHeaders::default();
    let Ok(batch) = records_from_payloads(&payloads, key, 5, &none) else {
        return;
    };
    let batch = batch.freeze();
    verify_from_client(&batch).expect("what we make is good enough for us");
    let mut runs = payloads_from_records(&batch, Offset::ZERO).expect("we read what we make");
    let run = runs
        .next()
        .expect("there is a payload")
        .expect("we read what we make");
    assert_eq!(run.payloads, payloads);
    assert!(runs.next().is_none());
}
