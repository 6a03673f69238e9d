// Package egress connects jobs to hosts on the network, under the rules of their repository. The program corral-egress runs
// it, for all jobs of one user.
//
// A door is one network namespace of a job or session, in which the package has sockets and nothing else has a way out. The
// job asks a DNS server at 127.0.0.1 for a name. If the rules allow it, the answer is a synthetic address that only this
// name has in this door, and at this address the package listens at the ports that the rules allow. So each connection that
// is accepted says by its local address which name and port it is for. It is decided on again by the rules that apply at
// that time, is connected to an address of the name that may be reached (egress/dial), and copied as long as it is for that
// host (egress/relay).
//
// A newer generation of rules applies to what is open: listeners and connections that it does not allow are closed. Rules
// that cannot be read allow nothing.
//
// What a job can use up is bounded: names, listeners and connections of a door, bytes, descriptors of the process, distinct
// denials in a report, lines in the log. Text of jobs and servers is cut and escaped where it is logged, and otherwise only
// passed on in summaries, whose readers must not trust it.
package egress
