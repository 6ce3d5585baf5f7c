/* What an image is built of: one below it, packages, files and commands. */
#ifndef RUN_RECIPE_H
#define RUN_RECIPE_H

#include "common/arena.h"
#include "common/error.h"
#include "common/field.h"
#include "common/token.h"

/* In the order in which they install. */
enum package_manager { APT, CARGO, GEM, GO, NPM, PIP, PACKAGE_MANAGERS };

struct recipe {
    const char *base;    /* the name of the image below */
    const char *network; /* "none", "egress"; NULL: as recipe_network says */
    struct texts packages[PACKAGE_MANAGERS];
    struct texts files;    /* relative paths: they are in /workspace while it is built */
    struct texts commands; /* for /bin/sh, when the packages are there */
};

/* Read the lines of a recipe; what is wrong with one is told with its number. Everything is in the
 * arena. */
int recipe_parse(const char *text, struct arena *arena, struct recipe *recipe, struct error *err);
const char *package_manager_name(enum package_manager manager);
/* Packages come from outside; commands alone need not. */
const char *recipe_network(const struct recipe *recipe);

/* One command of a build. */
struct recipe_step {
    const char *title; /* one line */
    const char *tool;  /* which the image below must have; NULL: a shell */
    struct texts argv;
};

/* All of them, in order, in the arena. */
size_t recipe_steps(const struct recipe *recipe, struct arena *arena, struct recipe_step **steps);
/* The variables of every step: caches lie in the workspace, which is no part of the image, and
 * nobody is asked anything. */
struct texts recipe_environment(void);

/* The name under which what is built is found again: the same for the same base, by its digest, the
 * same recipe, and the same `files` (a digest of theirs). */
enum { RECIPE_NAME_SIZE = 48 };
void recipe_name(const struct recipe *recipe, const char *base_digest, const char *files,
                 char out[RECIPE_NAME_SIZE]);

#endif
