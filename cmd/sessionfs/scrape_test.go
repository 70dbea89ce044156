package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLoopback(t *testing.T) {
	for _, tt := range []struct{ addr, want string }{
		{"", ""},
		{"127.0.0.1:9464", "127.0.0.1:9464"},
		{"127.7.7.7:0", "127.7.7.7:0"},
		{"[::1]:9464", "[::1]:9464"},
		{"[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:1"},
		{"localhost:9464", "127.0.0.1:9464"},
	} {
		if got, err := loopback(tt.addr); err != nil || got != tt.want {
			t.Errorf("%q: %q, %v; want %q", tt.addr, got, err, tt.want)
		}
	}
	for _, addr := range []string{
		":9464", "0.0.0.0:9464", "[::]:9464", "192.168.1.2:9464", "10.0.0.1:1", "[fe80::1%lo]:1", "example.org:80",
		"localhost.example.org:80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:+1", "2130706433:1", "9464",
	} {
		if got, err := loopback(addr); err == nil {
			t.Errorf("%q is taken as %q", addr, got)
		}
	}
}

func TestMetricsFlags(t *testing.T) {
	for _, o := range []mountOptions{{pprof: true}, {metricsAddr: "0.0.0.0:1"}, {metricsAddr: ":1"}} {
		if err := o.parse(newMountCommand(&app{})); exitStatus(err) != exitUsage {
			t.Errorf("%+v: %v", o, err)
		}
	}
	o := mountOptions{metricsAddr: "127.0.0.1:9464", pprof: true}
	if err := o.parse(newMountCommand(&app{})); err != nil {
		t.Fatal(err)
	}
	if got, want := o.args(), []string{"--metrics-addr", "127.0.0.1:9464", "--pprof"}; !slices.Equal(got, want) {
		t.Errorf("a detached process gets %q, want %q", got, want)
	}
}

// ask sends one request and returns status, type and body.
func ask(t *testing.T, method, addr, path, host string) (int, string, string) {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(body)
}

func TestScraper(t *testing.T) {
	for _, profiles := range []bool{false, true} {
		s, err := listenMetrics("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		s.start(func() []byte { n++; return fmt.Appendf(nil, "x_total %d\n# EOF\n", n) }, profiles, slog.New(slog.DiscardHandler))
		for round := 1; round <= 2; round++ {
			status, kind, body := ask(t, "GET", s.addr(), "/metrics", "")
			if status != 200 || kind != openMetrics || body != fmt.Sprintf("x_total %d\n# EOF\n", round) {
				t.Errorf("round %d: %d %s %q", round, status, kind, body)
			}
		}
		want := http.StatusNotFound
		if profiles {
			want = http.StatusOK
		}
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline"} {
			if status, _, _ := ask(t, "GET", s.addr(), path, ""); status != want {
				t.Errorf("profiles %v, %s: %d, want %d", profiles, path, status, want)
			}
		}
		for host, want := range map[string]int{
			"localhost": 200, "localhost:1": 200, "[::1]:9": 200, "[::1]": 200, "127.0.0.1": 200,
			"evil.example": 403, "evil.example:9464": 403, "10.0.0.1": 403, "127.0.0.1.evil.example": 403,
		} {
			if status, _, _ := ask(t, "GET", s.addr(), "/metrics", host); status != want {
				t.Errorf("host %s: %d, want %d", host, status, want)
			}
		}
		if status, _, _ := ask(t, "POST", s.addr(), "/metrics", ""); status != http.StatusMethodNotAllowed {
			t.Errorf("POST: %d", status)
		}
		addr := s.addr()
		s.close()
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			t.Error("the closed listener still answers")
		}
	}
}

func TestScraperTakenAddress(t *testing.T) {
	first, err := listenMetrics("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.close() // never started: the listener alone
	if _, err := listenMetrics(first.addr()); exitStatus(err) != exitBusy || !strings.Contains(errorText(err), "hint: ") {
		t.Errorf("the second listener: %v", err)
	}
	none, err := listenMetrics("")
	if err != nil || none != nil {
		t.Fatalf("no address: %v, %v", none, err)
	}
	none.start(nil, false, nil)
	none.close()
	if none.addr() != "" {
		t.Errorf("no listener has the address %q", none.addr())
	}
}

// TestScraperLogsNoRequest: what clients send does not get into the log.
func TestScraperLogsNoRequest(t *testing.T) {
	s, err := listenMetrics("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s.start(func() []byte { return nil }, false, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	conn, err := net.Dial("tcp", s.addr())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "nonsense\r\n\r\n")
	io.Copy(io.Discard, conn)
	conn.Close()
	s.close()
	if log.Len() > 0 {
		t.Errorf("log: %s", log.String())
	}
}
