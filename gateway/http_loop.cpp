#include "gateway/http_loop.hpp"

#include <spdlog/spdlog.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <exception>

#include "gateway/http_connection.hpp"

namespace troupe::gateway {

HttpLoop::HttpLoop(HttpShared& shared) : shared_(shared) {}

HttpLoop::~HttpLoop() {
  gate_->Close();
  Join();
}

void HttpLoop::Start() {
  thread_ = std::thread([this] { context_.run(); });
}

void HttpLoop::Join() {
  if (thread_.joinable()) thread_.join();
}

void HttpLoop::Adopt(boost::asio::ip::tcp::socket socket, bool probes_only) {
  boost::asio::post(context_, [this, probes_only, socket = std::move(socket)]() mutable {
    Serve(std::move(socket), probes_only);
  });
}

void HttpLoop::Serve(boost::asio::ip::tcp::socket socket, bool probes_only) {
  if (closing_) {
    shared_.connections.fetch_sub(1);
    return;
  }
  auto connection = std::make_shared<HttpConnection>(std::move(socket), *this, probes_only);
  connections_.emplace(connection.get(), connection);
  if (shared_.draining) connection->Drain();
  ArmSweep();
  boost::asio::co_spawn(context_, connection->Run(),
                        [this, key = connection.get()](std::exception_ptr failure) {
                          if (failure) {
                            try {
                              std::rethrow_exception(failure);
                            } catch (const std::exception& e) {
                              spdlog::error("http: a connection ended by an exception: {}", e.what());
                            }
                            key->Close();
                            key->Forget();
                          }
                          connections_.erase(key);
                          shared_.connections.fetch_sub(1);
                        });
}

void HttpLoop::CrowdOut() {
  boost::asio::post(context_, [this] {
    HttpConnection* oldest = nullptr;
    for (const auto& [key, connection] : connections_)
      if (connection->asking() && (oldest == nullptr || connection->entered() < oldest->entered()))
        oldest = key;
    if (oldest == nullptr) return;
    shared_.crowded_out.fetch_add(1);
    oldest->Close();
  });
}

void HttpLoop::Drain() {
  boost::asio::post(context_, [this] {
    for (const auto& [key, connection] : connections_) connection->Drain();
  });
}

void HttpLoop::CloseAll() {
  boost::asio::post(context_, [this] {
    closing_ = true;
    for (const auto& [key, connection] : connections_) connection->Close();
    work_.reset();
    sweep_timer_.cancel();
  });
}

void HttpLoop::ArmSweep() {
  if (sweeping_ || connections_.empty()) return;
  sweeping_ = true;
  sweep_timer_.expires_after(shared_.options.sweep_interval);
  sweep_timer_.async_wait([this](const boost::system::error_code& error) {
    sweeping_ = false;
    if (error) return;
    Sweep();
    ArmSweep();
  });
}

// One pass and one system call for all connections: cheaper than a timer and a watch per request.
void HttpLoop::Sweep() {
  const auto now = std::chrono::steady_clock::now();
  polled_.clear();
  for (const auto& [key, connection] : connections_) {
    connection->CheckDeadline(now);
    if (!connection->waiting()) continue;
    polled_.push_back({connection->descriptor(), POLLRDHUP, 0});
    polled_connections_.push_back(connection);
  }
  if (!polled_.empty() && ::poll(polled_.data(), polled_.size(), 0) > 0) {
    for (std::size_t i = 0; i < polled_.size(); ++i) {
      if ((polled_[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) polled_connections_[i]->Close();
    }
  }
  polled_connections_.clear();
}

const std::string& HttpLoop::DateHeader() {
  const std::time_t now = std::time(nullptr);
  if (now != date_second_) {
    date_second_ = now;
    std::tm utc{};
    ::gmtime_r(&now, &utc);
    std::array<char, 64> text;
    // Daemons never call setlocale, so the names are the English ones that HTTP wants.
    date_header_.assign(text.data(),
                        std::strftime(text.data(), text.size(), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &utc));
  }
  return date_header_;
}

}  // namespace troupe::gateway
