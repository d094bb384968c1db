//! The run's handle on the API, which is a child process that obeys orders.

use std::net::SocketAddr;
use std::process::Stdio;

use postrider_command::Failure;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use super::api::{Counts, Mood, Order};

pub(super) struct Target {
    pub(super) address: SocketAddr,
    pipes: Mutex<Pipes>,
    /// Killed with this program; it also ends when its input ends.
    _process: Child,
}

struct Pipes {
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Target {
    /// Starts the API. It remembers calls with numbers below `calls`.
    pub(super) async fn start(calls: u64) -> Result<Self, Failure> {
        let program = std::env::current_exe().map_err(failed)?;
        let mut process = Command::new(program)
            .args(["chaos-api", "--calls", &calls.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let (Some(orders), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(failed(std::io::ErrorKind::BrokenPipe.into()));
        };
        let mut pipes = Pipes { orders, answers: BufReader::new(answers).lines() };
        let address = pipes.receive().await?;
        Ok(Self { address, pipes: Mutex::new(pipes), _process: process })
    }

    pub(super) async fn be(&self, mood: Mood) -> Result<(), Failure> {
        self.ask(&Order::Be(mood)).await
    }

    pub(super) async fn forget(&self) -> Result<(), Failure> {
        self.ask(&Order::Forget).await
    }

    pub(super) async fn counts(&self) -> Result<Counts, Failure> {
        self.ask(&Order::Count).await
    }

    async fn ask<T: DeserializeOwned>(&self, order: &impl Serialize) -> Result<T, Failure> {
        let mut pipes = self.pipes.lock().await;
        let mut line = serde_json::to_vec(order).map_err(|error| failed(error.into()))?;
        line.push(b'\n');
        pipes.orders.write_all(&line).await.map_err(failed)?;
        pipes.receive().await
    }
}

impl Pipes {
    async fn receive<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let line = self.answers.next_line().await.map_err(failed)?;
        let line = line.ok_or_else(|| failed(std::io::ErrorKind::UnexpectedEof.into()))?;
        serde_json::from_str(&line).map_err(|error| failed(error.into()))
    }
}

fn failed(error: std::io::Error) -> Failure {
    Failure::Partly(format!("the API's process failed: {error}"))
}
