//! A provider and a control plane made of a page each, which do what a test says. For tests of this crate only.

pub(crate) mod controlplane;
pub(crate) mod provider;

use std::net::SocketAddr;

use axum::Router;
use tokio::net::TcpListener;

/// Something that answers on this machine until it is dropped.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let service = router.into_make_service_with_connect_info::<SocketAddr>();
            axum::serve(listener, service).await.unwrap();
        });
        Self { address, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}
