//! Routes in process, and connections over loopback, on a desk that plays from a script.

mod routes;
mod scripted;
mod sockets;
