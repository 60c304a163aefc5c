# Sends bytes over TCP as fast as they go. `stream.pl serve`; `stream.pl HOST SECONDS` prints Mbit/s sent and received.
use strict;
use warnings;
use Socket;

my $port = 7100;
my $block = "x" x 65536;

open(my $clock, "<", "/proc/uptime") or die "uptime: $!";    # perl-base has no Time::HiRes

sub now { sysseek($clock, 0, 0); sysread($clock, my $text, 64); return (split " ", $text)[0] }

sub give {    # sends for so many seconds
    my ($to, $seconds) = @_;
    my $until = now() + $seconds;
    while (now() < $until) { defined syswrite($to, $block) or die "send: $!" }
    shutdown($to, 1);
}

sub take {    # returns the Mbit/s of what comes, from the first byte to the last
    my ($from) = @_;
    my ($bytes, $begin, $end) = (0, 0, 0);
    while (my $count = sysread($from, my $buffer, 1 << 20)) { $begin ||= now(); $bytes += $count; $end = now() }
    return $end > $begin ? $bytes * 8 / 1e6 / ($end - $begin) : 0;
}

socket(my $socket, PF_INET, SOCK_STREAM, 0) or die "socket: $!";
if ($ARGV[0] eq "serve") {
    setsockopt($socket, SOL_SOCKET, SO_REUSEADDR, 1);
    bind($socket, sockaddr_in($port, INADDR_ANY)) or die "bind: $!";
    listen($socket, 5);
    $| = 1;
    print "listens\n";
    while (accept(my $client, $socket)) {
        sysread($client, my $what, 16);
        if ($what =~ /^give ([\d.]+)/) { give($client, $1) }
        else { syswrite($client, sprintf "%.1f", take($client)) }
        close $client;
    }
}
my ($host, $seconds) = @ARGV;
my $there = sockaddr_in($port, inet_aton($host));
connect($socket, $there) or die "connect: $!";
syswrite($socket, sprintf "%-16s", "take");
give($socket, $seconds);
sysread($socket, my $sent, 64);
socket(my $second, PF_INET, SOCK_STREAM, 0) or die "socket: $!";
connect($second, $there) or die "connect: $!";
syswrite($second, sprintf "%-16s", "give $seconds");
printf "%.1f %.1f\n", $sent, take($second);
