//! Every listing that comes in pages.

use serde_json::{Value, json};

use crate::common::{World, stream};

const SPACE: &str = "/v1/tenants/acme/namespaces/ns";

#[tokio::test]
async fn every_paged_listing_goes_on_where_it_stopped_and_refuses_what_it_cannot_read() {
    let world = World::new().await;
    fill(&world).await;
    let tenant = "/v1/tenants/acme";
    let listings = [
        ("/v1/tenants".to_owned(), world.operator.as_str()),
        (format!("{tenant}/namespaces"), &world.admin),
        (format!("{SPACE}/streams"), &world.admin),
        (format!("{SPACE}/caches"), &world.admin),
        (format!("{tenant}/rbac/policies"), &world.admin),
        (format!("{tenant}/rbac/groupings"), &world.admin),
        (format!("{tenant}/quotas"), &world.admin),
        (format!("{tenant}/revocations"), &world.admin),
    ];
    for (path, token) in &listings {
        let whole = pages(&world, path, token, 1000).await;
        assert!(whole.len() > 1, "{path}: {whole:?}");
        assert_eq!(pages(&world, path, token, 1).await, whole, "{path}");
        for query in [
            "limit=0",
            "limit=10001",
            "limit=many",
            "limit=-1",
            "cursor=!!!",
            "limit=1&limit=2",
        ] {
            let refused = world
                .call("GET", &format!("{path}?{query}"), token, None)
                .await;
            let found = (refused.status, refused.code());
            assert_eq!(found, (400, "validation_error"), "{path}?{query}");
        }
    }
    for list in ["policies", "groupings"] {
        let bare = world.get(&format!("{tenant}/rbac/{list}")).await.body;
        assert!(
            bare.is_array(),
            "asked for no page, it is a bare list: {bare}"
        );
    }
}

async fn fill(world: &World) {
    for name in ["a", "b", "c"] {
        world.post(&format!("{SPACE}/streams"), &stream(name)).await;
        let cache = json!({"cache": name});
        world.post(&format!("{SPACE}/caches"), &cache).await;
        let space = json!({"namespace": name});
        world.post("/v1/tenants/acme/namespaces", &space).await;
        let gift = json!({"user": name, "role": "role:tenant-admin"});
        world.post("/v1/tenants/acme/rbac/groupings", &gift).await;
        let revoked = json!({"kind": "token", "id": name});
        world.post("/v1/tenants/acme/revocations", &revoked).await;
        let path = format!("/v1/tenants/acme/quotas/principals/{name}");
        let limits = json!({"subscriptions": 1});
        let set = world.call("PUT", &path, &world.admin, Some(&limits)).await;
        assert_eq!(set.status, 200, "{set:?}");
    }
}

async fn pages(world: &World, path: &str, token: &str, limit: usize) -> Vec<Value> {
    let mut items = Vec::new();
    let mut cursor = String::new();
    loop {
        let url = format!("{path}?limit={limit}{cursor}");
        let answer = world.call("GET", &url, token, None).await;
        assert_eq!(answer.status, 200, "{url}: {answer:?}");
        let page = answer.body["items"].as_array().unwrap();
        assert!(page.len() <= limit);
        items.extend(page.iter().cloned());
        match answer.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return items,
        }
    }
}
