package main

import (
	"log/slog"
	"net"
	"os"
	"strings"
)

// The states that a service manager is told, see sd_notify(3).
const (
	notifyReady    = "READY=1"
	notifyStopping = "STOPPING=1"
)

// notifier tells the service manager that started this process, if one did,
// how it is doing.
type notifier struct{ socket string }

// newNotifier takes the socket's name out of the environment, so that no child
// of this process speaks in its place.
func newNotifier() notifier {
	name := os.Getenv("NOTIFY_SOCKET")
	os.Unsetenv("NOTIFY_SOCKET")
	return notifier{name}
}

// tell sends states, one a line. A manager that cannot be told is only worth a
// warning: the mount works all the same.
func (n notifier) tell(log *slog.Logger, states ...string) {
	if n.socket == "" {
		return
	}
	name := n.socket
	if strings.HasPrefix(name, "@") { // Linux's abstract names
		name = "\x00" + name[1:]
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		_, err = conn.Write([]byte(strings.Join(states, "\n")))
		conn.Close()
	}
	if err != nil {
		log.Warn("the service manager was not told", "err", err)
	}
}
