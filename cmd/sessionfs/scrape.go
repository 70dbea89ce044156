package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// openMetrics is the type of what /metrics answers.
const openMetrics = "application/openmetrics-text; version=1.0.0; charset=utf-8"

// maxScrapeHeader bounds the header of a request, in bytes.
const maxScrapeHeader = 16 << 10

// loopback checks the address of a listener that nobody outside this machine
// may reach: what it serves tells of a user's work, and asks for no password.
// Names are not looked up, since what they mean may change. An empty address
// is an empty one.
func loopback(addr string) (string, error) {
	if addr == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", errors.New("not ADDRESS:PORT")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || port != strconv.FormatUint(n, 10) {
		return "", errors.New("the port is not a number from 0 to 65535")
	}
	if !loopbackHost(host) {
		return "", errors.New("not a loopback address like 127.0.0.1:9464; what is served asks for no password")
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// loopbackHost reports whether a host is this machine and nothing else.
func loopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// scraper serves the figures of a mount to who runs on the same machine. It is
// safe on nil, which serves nothing.
type scraper struct {
	listener net.Listener
	server   *http.Server
}

// listenMetrics takes the address, before there is a mount that would have to
// be undone. What connects meanwhile waits for start.
func listenMetrics(addr string) (*scraper, error) {
	addr, err := loopback(addr)
	if err != nil || addr == "" {
		return nil, err
	}
	listener, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, failf(exitBusy, "choose another port; 0 takes a free one, and 'sessionfs status' shows it", "mount: --metrics-addr: %w", err)
	case err != nil:
		return nil, fmt.Errorf("mount: --metrics-addr: %w", err)
	}
	return &scraper{listener: listener}, nil
}

// addr returns the address with the port that was taken.
func (s *scraper) addr() string {
	if s == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// start serves text at /metrics, and the Go runtime's profiles when asked.
func (s *scraper) start(text func() []byte, profiles bool, log *slog.Logger) {
	if s == nil {
		return
	}
	s.server = &http.Server{
		Handler:           scrapeHandler(text, profiles),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       5 * time.Second,
		IdleTimeout:       2 * time.Minute, // longer than the usual time between two scrapes
		MaxHeaderBytes:    maxScrapeHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	log.Info("serving metrics", "addr", s.addr(), "pprof", profiles)
	go func() {
		if err := s.server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("metrics are no longer served", "err", err)
		}
	}()
}

// close ends every connection. There is nothing that a client could lose.
func (s *scraper) close() {
	switch {
	case s == nil:
	case s.server != nil:
		s.server.Close()
	default:
		s.listener.Close()
	}
}

// scrapeHandler has a mux of its own: the default one is everybody's.
func scrapeHandler(text func() []byte, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		body := text()
		w.Header().Set("Content-Type", openMetrics)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Header().Set("Cache-Control", "no-store")
		w.Write(body)
	})
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return ownMachineOnly(mux)
}

// ownMachineOnly refuses requests for another host's name. A web page could
// otherwise point a name of its own at this machine, and read what is served
// through its visitor's browser.
func ownMachineOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' { // an IPv6 address without a port
			host = host[1 : len(host)-1]
		}
		if !loopbackHost(host) {
			http.Error(w, "this is served to its own machine only", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
