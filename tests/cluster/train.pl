# SPDX-License-Identifier: Apache-2.0
# A data-parallel training: linear regression by gradient descent, its gradients summed over TCP at every step.
# One process on each node, placed by what torchrun reads; arguments: steps, folder, seconds between two steps.
# SIGTERM at any rank: all end behind the same step, and the first writes the checkpoint.
use strict;
use warnings;
use IO::Socket::INET;

my ($steps, $folder, $pace) = @ARGV;
my ($rank, $size) = ($ENV{PET_NODE_RANK}, $ENV{PET_NNODES});
my ($features, $batch, $rate) = (8, 32, 0.05);
my @weights = (0) x $features;
my ($step, $stop) = (0, 0);
$SIG{TERM} = sub { $stop = 1 };

# The same figures in each process: x and y of sample $i, in exact fractions of two.
sub sample {
    my ($i) = @_;
    my @x = map { (($i * 37 + $_ * 101 + $i * $_ * 13) % 256) / 256 - 0.5 } 0 .. $features - 1;
    my $y = ($i * 29 % 128) / 128;
    $y += ($_ + 1) / 8 * $x[$_] for 0 .. $features - 1;
    return ($y, @x);
}

# The sums over this rank's part of a batch: the gradient, and behind it the loss.
sub gradient {
    my @sum = (0) x ($features + 1);
    for my $i ($step * $batch + $rank * $batch / $size .. $step * $batch + ($rank + 1) * $batch / $size - 1) {
        my ($y, @x) = sample($i);
        my $error = -$y;
        $error += $weights[$_] * $x[$_] for 0 .. $features - 1;
        $sum[$_] += $error * $x[$_] for 0 .. $features - 1;
        $sum[$features] += $error * $error;
    }
    return @sum;
}

# Into a file beside stdout: what a program prints after SIGTERM, srun does not write any more.
sub say_to_file {
    my $line = sprintf(shift, @_) . "\n";
    print $line;
    open my $file, '>>', "$folder/figures" or die "$!";
    print $file $line;
    close $file;
}

my $length = 8 * ($features + 2);

sub receive {
    my ($peer, $data) = (shift, '');
    while (length $data < $length) {
        my $got = sysread $peer, $data, $length - length $data, length $data;
        next if !defined $got && $!{EINTR};
        die "a peer is gone\n" if !$got;
    }
    return unpack 'd<*', $data;
}

sub transmit { my ($peer, @figures) = @_; syswrite $peer, pack('d<*', @figures) }

sub connect_all {
    if ($rank == 0) {
        my $server = IO::Socket::INET->new(LocalPort => $ENV{PET_MASTER_PORT}, Listen => $size, ReuseAddr => 1) or die "$!";
        my %by_rank;
        for (2 .. $size) {
            my $peer = $server->accept or redo;
            my ($its) = receive($peer);
            $by_rank{$its} = $peer;
        }
        return map { $by_rank{$_} } sort { $a <=> $b } keys %by_rank;
    }
    while (1) {
        my $peer = IO::Socket::INET->new(PeerAddr => $ENV{PET_MASTER_ADDR}, PeerPort => $ENV{PET_MASTER_PORT});
        if ($peer) { transmit($peer, $rank, (0) x ($features + 1)); return $peer }
        select undef, undef, undef, 0.1;
    }
}

# Sum over all ranks, in their order; the last figure says whether one of them has to end.
sub all_reduce {
    my ($peers, @sum) = @_;
    if ($rank) { transmit($peers->[0], @sum); return receive($peers->[0]) }
    for my $peer (@$peers) { my @other = receive($peer); $sum[$_] += $other[$_] for 0 .. $#sum }
    transmit($_, @sum) for @$peers;
    return @sum;
}

if (open my $file, '<', "$folder/checkpoint") {
    ($step, @weights) = unpack 'd<*', do { local $/; <$file> };
    print "goes on\n";
}
my @peers = connect_all();
$| = 1;
while ($step < $steps) {
    my @sum = all_reduce(\@peers, gradient(), $stop);
    $weights[$_] -= $rate * $sum[$_] / $batch for 0 .. $features - 1;
    $step++;
    say_to_file('step %d loss %.17g', $step, $sum[$features] / $batch) if !$rank;
    if ($sum[-1] && $step < $steps) {
        if (!$rank) {
            open my $file, '>', "$folder/checkpoint.new" or die "$!";
            print $file pack 'd<*', $step, @weights;
            close $file;
            rename "$folder/checkpoint.new", "$folder/checkpoint";
        }
        exit 0;
    }
    select undef, undef, undef, $pace;
}
say_to_file('weights' . ' %.17g' x $features, @weights) if !$rank;
