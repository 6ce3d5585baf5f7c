/* The table `inet sandbox`: see network_rules.h. */
#include "supervisor/network_rules.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/scope.h"
#include "supervisor/network_plan.h"
#include "supervisor/supervisor.h"

/* Never reached, whatever the operator's network is like, unless EGRESS_ALLOW names it: this host,
 * private networks, addresses of clouds' metadata, and forms of IPv6 that carry one of those
 * (RFC 6890, RFC 8190; 64:ff9b::/96 and 2002::/16 embed an IPv4 address, 2001::/32 too). */
static const char *const refused[] = {
    "0.0.0.0/8",     "10.0.0.0/8",      "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24",    "192.0.2.0/24",   "192.88.99.0/24", "192.168.0.0/16",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",    "240.0.0.0/4",
    "::/3",          "2001::/23",       "2001:db8::/32",  "2002::/16",      "3fff::/20",
    "4000::/2",      "8000::/1",
};

/* The sets of one list: elements of each family. */
struct elements {
    struct buffer four, six;
};

static void add_element(const struct network_range *range, void *data)
{
    struct elements *elements = data;
    struct buffer *buffer = range->first.family == AF_INET ? &elements->four : &elements->six;

    buffer_format(buffer, "%s%s/%u", buffer->length ? ", " : "", network_text(&range->first),
                  range->prefix);
}

static void add_set(struct buffer *text, const char *name, const char *type,
                    const struct buffer *elements)
{
    buffer_format(text, "  set %s { type %s; flags interval; auto-merge;", name, type);
    if (elements->length)
        buffer_format(text, " elements = { %.*s };", (int)elements->length, elements->data);
    buffer_text(text, " }\n");
}

static void add_sets(struct buffer *text, const char *name, struct elements *elements)
{
    char full[32];

    snprintf(full, sizeof(full), "%s4", name);
    add_set(text, full, "ipv4_addr", &elements->four);
    snprintf(full, sizeof(full), "%s6", name);
    add_set(text, full, "ipv6_addr", &elements->six);
    buffer_done(&elements->four);
    buffer_done(&elements->six);
}

static void add_lists(struct buffer *text)
{
    struct elements never = {0}, allowed = {0}, denied = {0};

    for (size_t i = 0; i < COUNT(refused); i++)
        network_list_read(refused[i], add_element, &never);
    network_list_read(settings.egress_allow, add_element, &allowed);
    network_list_read(settings.egress_deny, add_element, &denied);
    add_sets(text, "never", &never);
    add_sets(text, "allowed", &allowed);
    add_sets(text, "denied", &denied);
}

/* In one transaction: a table that was there is gone when the new one is. */
#define BEGIN "add table inet sandbox\ndelete table inet sandbox\ntable inet sandbox {\n"
#define ANY "\"" NETWORK_PREFIX "*\""
#define SILENTLY "drop\n"
#define TELLING "reject with icmpx admin-prohibited\n"

/* Told, so that a program inside need not wait: "No route to host". */
static void add_judge(struct buffer *text)
{
    static const char *const lines[] = {
        "ip daddr @denied4 " TELLING,  "ip6 daddr @denied6 " TELLING,
        "ip daddr @allowed4 accept\n", "ip6 daddr @allowed6 accept\n",
        "ip daddr @never4 " TELLING,   "ip6 daddr @never6 " TELLING,
    };

    buffer_text(text, "  chain judge {\n");
    for (size_t i = 0; i < COUNT(lines); i++)
        buffer_format(text, "    %s", lines[i]);
    buffer_text(text, "  }\n");
}

static void add_chains(struct buffer *text, const char *resolver, uint16_t port)
{
    /* Before anything else looks at it. A source that does not belong to the interface is made up;
     * any address of the host is refused under every name that it has. */
    buffer_text(text, "  chain leaving {\n");
    if (!network_plan.has_six)
        buffer_text(text, "    meta nfproto ipv6 " SILENTLY);
    buffer_text(text, "    fib saddr . iif oif missing " SILENTLY);
    buffer_format(text, "    ip daddr %s meta l4proto { tcp, udp } th dport 53 accept\n", resolver);
    buffer_text(text, "    fib daddr type != unicast " TELLING "    jump judge\n  }\n");
    buffer_text(text, "  chain first {\n    type filter hook prerouting priority raw; policy "
                      "accept;\n    iifname " ANY " jump leaving\n");
    buffer_format(text, "    iifname != \"lo\" iifname != " ANY " ip daddr %s " SILENTLY "  }\n",
                  resolver);
    /* The resolver has a port of its own, since 53 may be somebody else's. */
    buffer_format(text,
                  "  chain names {\n    type nat hook prerouting priority -110; policy accept;\n"
                  "    iifname " ANY
                  " ip daddr %s meta l4proto { tcp, udp } th dport 53 dnat ip to "
                  "%s:%u\n  }\n",
                  resolver, resolver, port);
    /* And once more after other rules of this host have changed where it goes to. */
    buffer_text(text,
                "  chain through {\n    type filter hook forward priority filter; policy accept;\n"
                "    iifname " ANY " oifname " ANY " " TELLING "    iifname " ANY
                " jump judge\n    oifname " ANY " ct state established,related accept\n"
                "    oifname " ANY " " SILENTLY "  }\n");
    buffer_format(text,
                  "  chain to_host {\n    type filter hook input priority filter; policy accept;\n"
                  "    iifname " ANY " ip daddr %s meta l4proto { tcp, udp } th dport %u accept\n"
                  "    iifname " ANY " " TELLING "  }\n",
                  resolver, port);
    buffer_text(text,
                "  chain from_host {\n    type filter hook output priority filter; policy accept;\n"
                "    oifname " ANY " ct state established,related accept\n"
                "    oifname " ANY " icmp type { destination-unreachable, time-exceeded } accept\n"
                "    oifname " ANY
                " icmpv6 type { destination-unreachable, packet-too-big, time-exceeded } accept\n"
                "    oifname " ANY " " SILENTLY "  }\n");
}

static void add_masquerade(struct buffer *text)
{
    buffer_format(text,
                  "  chain last {\n    type nat hook postrouting priority srcnat; policy accept;\n"
                  "    ip saddr %s/%u oifname != " ANY " masquerade\n",
                  network_text(&network_plan.four.first), network_plan.four.prefix);
    if (network_plan.has_six)
        buffer_format(text, "    ip6 saddr %s/%u oifname != " ANY " masquerade\n",
                      network_text(&network_plan.six.first), network_plan.six.prefix);
    buffer_text(text, "  }\n");
}

void network_rules_text(struct buffer *text, uint16_t port)
{
    char resolver[64];

    snprintf(resolver, sizeof(resolver), "%s", network_text(&network_plan.resolver));
    buffer_text(text, BEGIN);
    add_lists(text);
    add_judge(text);
    add_chains(text, resolver, port);
    add_masquerade(text);
    buffer_text(text, "}\n");
}

void network_rules_cut(struct buffer *text)
{
    buffer_text(text,
                BEGIN "  chain first {\n    type filter hook prerouting priority raw; policy "
                      "accept;\n    iifname " ANY " drop\n  }\n"
                      "  chain from_host {\n    type filter hook output priority filter; policy "
                      "accept;\n    oifname " ANY " drop\n  }\n}\n");
}

void network_rules_none(struct buffer *text)
{
    buffer_text(text, "add table inet sandbox\ndelete table inet sandbox\n");
}

/* --- nft ------------------------------------------------------------------------------------- */

/* All that it says, so that it is never held up; the first line is kept. */
static void hear_nft(int from, char *line, size_t room)
{
    char bytes[4096];
    size_t kept = 0;
    ssize_t got;

    while ((got = read(from, bytes, sizeof(bytes))) > 0) {
        size_t more = (size_t)got < room - 1 - kept ? (size_t)got : room - 1 - kept;

        memcpy(line + kept, bytes, more);
        kept += more;
    }
    line[kept] = '\0';
    line[strcspn(line, "\n")] = '\0';
}

/* Safe: a program and a text that nobody but the operator has a part in. */
int network_rules_write(const struct buffer *text, struct error *err)
{
    char *const arguments[] = {(char[]){"nft"}, (char[]){"-f"}, (char[]){"-"}, NULL};
    char *const environment[] = {NULL};
    int input[2], output[2], status;
    char line[200];
    bool whole;
    pid_t pid;

    if (pipe2(input, O_CLOEXEC) < 0)
        return error_set_errno(err, ERR_INTERNAL, "pipe");
    auto_close int from_us = input[0], to_nft = input[1];
    if (pipe2(output, O_CLOEXEC) < 0)
        return error_set_errno(err, ERR_INTERNAL, "pipe");
    auto_close int from_nft = output[0], to_us = output[1];
    pid = fork();
    if (pid < 0)
        return error_set_errno(err, ERR_INTERNAL, "fork");
    if (pid == 0) {
        sigset_t none;

        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGPIPE, SIG_DFL);
        if (dup2(from_us, 0) < 0 || dup2(to_us, 1) < 0 || dup2(to_us, 2) < 0)
            _exit(EXIT_FAILURE);
        execve(NFT_PROGRAM, arguments, environment);
        _exit(EXIT_FAILURE);
    }
    close(take_fd(&to_us));
    close(take_fd(&from_us));
    /* Should it end before it has read all, its status says so. */
    whole = write(to_nft, text->data, text->length) == (ssize_t)text->length;
    close(take_fd(&to_nft));
    hear_nft(from_nft, line, sizeof(line));
    if (waitpid(pid, &status, 0) != pid)
        return error_set_errno(err, ERR_INTERNAL, "nft");
    if (!whole || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return error_set(err, ERR_INTERNAL, "nft: %s", line[0] ? line : "it failed");
    return 0;
}
