package meter

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

const (
	// maxTable is the maximum number of bytes of one table of sockets that is read: some 200,000 lines.
	maxTable = 32 << 20

	// unacceptedBytes is what the kernel uses for a connection without a descriptor, besides its data: 1.9 KB for IPv4, 4 KB for IPv6.
	unacceptedBytes = 4 << 10
	// timeWaitBytes is what is left of a connection in the state TIME_WAIT.
	timeWaitBytes = 256
	// membershipBytes is what the kernel uses for the membership of a socket in a multicast group.
	membershipBytes = 64
	// sourceBytes is what it uses for a source in the filter of a group, in the group and in a socket.
	sourceBytes = 128
	// groupBytes is more than the 250 bytes that it uses for a group: it walks the list of groups once for each page of the table.
	groupBytes = 1 << 10
	// dataFactor is by how much the buffers of queued data are larger than the data: 1.1 in loopback connections, more for a short rest.
	dataFactor = 2

	// MaxConnectionBytes is how much data the connections of a job that have a descriptor can hold before the rest counts, too. Its
	// cgroup is charged for it, but all of the host's connections share one pool (net.ipv4.tcp_mem, an eleventh of the memory).
	MaxConnectionBytes = 128 << 20

	// filterSize is what the kernel uses, uncharged, for a system call filter of the maximum length, 4,096 instructions: a copy of the
	// instructions, and compiled code.
	filterSize = 56 << 10
	// ownFilters are the filters of corral that each task of a job has.
	ownFilters = 3
)

var errTooMuchToRead = errors.New("more lines than are read")

// A survey is what can be said about the sockets of a network namespace without its long tables.
type survey struct {
	dir       string // the directory net of one of its processes in /proc, with a slash at its end
	uncharged int64  // bytes: netlink sockets, connections in the state TIME_WAIT, multicast groups
	sockets   int64  // lines of the tables that bytes reads
	tables    []table
}

type table struct {
	name string
	size func(s *sum, fields []string) error
}

// A sum is what tables have in total.
type sum struct {
	uncharged int64
	connected int64 // data in connections that have a descriptor
}

// surveyOf looks at the network namespace whose /proc/PID/net is dir. It reads the table of netlink sockets, because the kernel keeps
// them in one of their own that is short elsewhere, and those of multicast groups, up to as many as are too many.
func surveyOf(dir string) (survey, error) {
	v := survey{dir: dir}
	var tcp, tcp6, udp, udp6, data int64
	err := errors.Join(
		readLines(dir+"sockstat", func(line string) error {
			tcp += statOf(line, "TCP:", "inuse")
			v.uncharged += statOf(line, "TCP:", "tw") * timeWaitBytes
			data += statOf(line, "TCP:", "mem") * int64(os.Getpagesize())
			udp += statOf(line, "UDP:", "inuse")
			return nil
		}),
		readLines(dir+"sockstat6", func(line string) error {
			tcp6 += statOf(line, "TCP6:", "inuse")
			udp6 += statOf(line, "UDP6:", "inuse")
			return nil
		}),
		readLines(dir+"netlink", func(line string) error {
			n, err := netlinkBytes(strings.Fields(line))
			v.uncharged += n
			return err
		}),
		readLines(dir+"mcfilter", func(string) error { return v.holds(sourceBytes) }),
		readLines(dir+"mcfilter6", func(string) error { return v.holds(sourceBytes) }),
		readLines(dir+"igmp", func(line string) error { return v.group(strings.Fields(line), 4, 1) }),
		readLines(dir+"igmp6", func(line string) error { return v.group(strings.Fields(line), 6, 3) }),
	)
	// The kernel's walk of a table visits its empty parts, too: that of TCP takes 20 ms. So what is not needed is left out. The data in TCP
	// connections is that of the whole host.
	if v.uncharged+(tcp+tcp6)*unacceptedBytes+data*dataFactor <= MaxKernelBytes/2 {
		tcp, tcp6 = 0, 0
	}
	for _, t := range []struct {
		sockets int64
		table
	}{
		{udp, table{"udp", (*sum).udp}},
		{udp6, table{"udp6", (*sum).udp}},
		{tcp, table{"tcp", (*sum).tcp}},
		{tcp6, table{"tcp6", (*sum).tcp}},
	} {
		if t.sockets > 0 {
			v.sockets += t.sockets
			v.tables = append(v.tables, t.table)
		}
	}
	return v, err
}

// bytes reads the tables, and estimates what all sockets hold uncharged.
func (v *survey) bytes() (int64, error) {
	s := sum{uncharged: v.uncharged}
	for _, t := range v.tables {
		if err := readLines(v.dir+t.name, func(line string) error { return t.size(&s, strings.Fields(line)) }); err != nil {
			return s.uncharged, err
		}
	}
	return s.uncharged + max(0, s.connected-MaxConnectionBytes), nil
}

// group adds a multicast group, if the line has as many columns as those of groups have: column has the number of its members.
func (v *survey) group(f []string, columns, column int) error {
	if len(f) != columns {
		return nil
	}
	n, err := strconv.ParseInt(f[column], 10, 64)
	if err != nil {
		return nil // the line of an interface, or the header
	}
	return v.holds(groupBytes + n*membershipBytes)
}

// holds adds n bytes, and is an error if there are too many: then no more is read.
func (v *survey) holds(n int64) error {
	if v.uncharged += n; v.uncharged > MaxKernelBytes {
		return errTooMuchToRead
	}
	return nil
}

// netlinkBytes returns what waits in a socket of /proc/PID/net/netlink: the fifth column is the size of its buffers.
func netlinkBytes(f []string) (int64, error) {
	if len(f) < 5 || f[0] == "sk" {
		return 0, nil
	}
	return strconv.ParseInt(f[4], 10, 64)
}

// Columns of /proc/PID/net/tcp, udp and those of IPv6.
const (
	columnState  = 3
	columnQueues = 4 // two hexadecimal numbers with a colon between them
	columnInode  = 9
)

// udp adds what waits in a UDP socket. The column counts the buffers, including those of errors (IP_RECVERR).
func (s *sum) udp(f []string) error {
	if len(f) <= columnInode || f[0] == "sl" {
		return nil
	}
	n, err := queued(f[columnQueues])
	s.uncharged += n
	return err
}

// tcp adds what a connection holds uncharged, by estimate: one without a descriptor, which waits to be accepted, or was closed with data
// to be sent. Of any other it adds the data.
func (s *sum) tcp(f []string) error {
	const listening, timeWait = "0A", "06" // queues of the first count connections; the second are counted by sockstat
	if len(f) <= columnInode || f[0] == "sl" || f[columnState] == listening || f[columnState] == timeWait {
		return nil
	}
	n, err := queued(f[columnQueues])
	if f[columnInode] == "0" {
		s.uncharged += unacceptedBytes + n*dataFactor
	} else {
		s.connected += n
	}
	return err
}

// queued returns the sum of the two queues.
func queued(column string) (int64, error) {
	out, in, _ := strings.Cut(column, ":")
	a, err1 := strconv.ParseInt(out, 16, 64)
	b, err2 := strconv.ParseInt(in, 16, 64)
	return a + b, errors.Join(err1, err2)
}

// statOf returns the number after name in a line of sockstat that starts with kind, or 0 if the line has none.
func statOf(line, kind, name string) int64 {
	f := strings.Fields(line)
	if len(f) == 0 || f[0] != kind {
		return 0
	}
	for i := 1; i+1 < len(f); i += 2 {
		if f[i] == name {
			n, _ := strconv.ParseInt(f[i+1], 10, 64) // written by the kernel
			return n
		}
	}
	return 0
}

// filterBytes returns what the kernel uses at most for the filters that the tasks of a group have loaded (seccomp(2)). Tasks that share
// a filter each count for it.
func filterBytes(group Group, maxTasks int64) (int64, error) {
	pids, err := group.PIDs()
	if err != nil {
		return 0, err
	}
	var filters int64
	err = eachTask(pids, maxTasks, "status", func(path string) error {
		return readLines(path, func(line string) error {
			count, ok := strings.CutPrefix(line, "Seccomp_filters:")
			if !ok {
				return nil
			}
			n, err := strconv.ParseInt(strings.TrimSpace(count), 10, 64)
			filters += max(0, n-ownFilters)
			return err
		})
	})
	return filters * filterSize, err
}

// readLines calls do for each line of a file of the kernel's. A file that does not exist has no lines: the kernel lacks it, or its
// process has ended.
func readLines(path string, do func(line string) error) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	limited := &io.LimitedReader{R: f, N: maxTable}
	lines := bufio.NewScanner(limited)
	for lines.Scan() {
		if err := do(lines.Text()); err != nil {
			return err
		}
	}
	if limited.N <= 0 {
		return errTooMuchToRead
	}
	if err := lines.Err(); !goneMeanwhile(err) {
		return err
	}
	return nil
}
