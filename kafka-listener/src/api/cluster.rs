//! DescribeCluster: this listener is all of the cluster that its clients need to know.

use std::sync::Arc;

use felix_auth::{Action, Resource};
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{BrokerId, DescribeClusterRequest, DescribeClusterResponse};

use super::{Ctx, Head, cluster_id, text};

/// Kind of endpoint that brokers have; the other kind is controllers.
const BROKERS: i8 = 1;

/// The request asks for an endpoint there is none of.
const MISMATCHED_ENDPOINT_TYPE: i16 = 114;

pub(super) async fn answer(
    ctx: Arc<Ctx>,
    _head: Head,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    if request.endpoint_type != BROKERS {
        return DescribeClusterResponse::default()
            .with_error_code(MISMATCHED_ENDPOINT_TYPE)
            .with_error_message(Some(text("there are brokers only, no controllers")));
    }
    let (host, port) = &ctx.shared.advertised;
    let node = BrokerId(ctx.shared.node_id);
    let broker = DescribeClusterBroker::default()
        .with_broker_id(node)
        .with_host(text(host))
        .with_port(i32::from(*port));
    let mut response = DescribeClusterResponse::default()
        .with_cluster_id(text(&cluster_id(&ctx)))
        .with_controller_id(node)
        .with_brokers(vec![broker]);
    if request.include_cluster_authorized_operations {
        response.cluster_authorized_operations = operations(&ctx);
    }
    response
}

/// What may be done to the tenant as a whole, as bits in the numbers of the protocol.
pub(super) fn operations(ctx: &Ctx) -> i32 {
    const CREATE: i32 = 5;
    const DESCRIBE: i32 = 8;
    const DESCRIBE_CONFIGS: i32 = 10;
    const IDEMPOTENT_WRITE: i32 = 12;
    let tenant = Resource::Tenant(ctx.who.tenant().as_str());
    let mut bits = 1 << DESCRIBE | 1 << DESCRIBE_CONFIGS | 1 << IDEMPOTENT_WRITE;
    if ctx.who.principal.allows(Action::TenantManage, &tenant) {
        bits |= 1 << CREATE;
    }
    bits
}
