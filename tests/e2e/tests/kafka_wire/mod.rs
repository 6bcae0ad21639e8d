//! A connection to a Kafka listener: one request after the other, each with its answer.

use bytes::{Bytes, BytesMut};
use felix_model::{BatchBuilder, BatchOptions};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiKey, ProduceRequest, ProduceResponse, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, ToSocketAddrs};

/// Version of Produce that is asked.
const PRODUCE: i16 = 9;

pub(crate) struct Wire(TcpStream);

impl Wire {
    pub(crate) async fn connect(address: impl ToSocketAddrs) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// The answer to a request; `None` when the connection ends instead.
    pub(crate) async fn ask<A: Decodable>(
        &mut self,
        api: ApiKey,
        version: i16,
        request: &impl Encodable,
    ) -> Option<A> {
        let header = RequestHeader::default()
            .with_request_api_key(api as i16)
            .with_request_api_version(version)
            .with_correlation_id(1);
        let mut asked = BytesMut::new();
        header
            .encode(&mut asked, api.request_header_version(version))
            .unwrap();
        request.encode(&mut asked, version).unwrap();
        let length = u32::try_from(asked.len()).unwrap();
        self.0.write_u32(length).await.ok()?;
        self.0.write_all(&asked).await.ok()?;
        let length = self.0.read_u32().await.ok()?;
        let mut answer = vec![0; length as usize];
        self.0.read_exact(&mut answer).await.ok()?;
        let mut answer = Bytes::from(answer);
        ResponseHeader::decode(&mut answer, api.response_header_version(version)).unwrap();
        Some(A::decode(&mut answer, version).unwrap())
    }

    /// What is said of a record that is produced to a topic: 0, or the number of the error.
    pub(crate) async fn produce(&mut self, topic: &str, text: &str) -> i16 {
        let mut batch = BatchBuilder::new(BatchOptions::default());
        batch.push(1, None, Some(text.as_bytes()), &[]).unwrap();
        let partition = PartitionProduceData::default()
            .with_index(0)
            .with_records(Some(batch.finish().unwrap().freeze()));
        let topic = TopicProduceData::default()
            .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
            .with_partition_data(vec![partition]);
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![topic]);
        let answer: Option<ProduceResponse> = self.ask(ApiKey::Produce, PRODUCE, &request).await;
        answer.unwrap().responses[0].partition_responses[0].error_code
    }
}
