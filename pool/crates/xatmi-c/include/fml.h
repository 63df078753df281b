/*
 * fml.h - the names that FML programs use, for the functions of ubf.h.
 *
 * A program that was written with FML calls is compiled again with this header, and its buffers are
 * those of fml32.h: ids, lengths and occurrences are ints. tpalloc("FML", ...) gives one. Values of
 * FLD_*, error numbers and ids are those of ubf.h: make headers from field tables anew.
 */
#ifndef POLLUX_FML_H
#define POLLUX_FML_H

#include "fml32.h"

#define FMLTYPE "FML"

typedef UBFH FBFR;
typedef BFLDID FLDID;
typedef BFLDLEN FLDLEN;
typedef BFLDOCC FLDOCC;

/* There is one kind of buffer, so it is copied. */
#define F16to32(to, from) Bcpy(to, from)
#define F32to16(to, from) Bcpy(to, from)

#define Ferror Berror
#define Fstrerror Bstrerror
#define F_error B_error

#define Fadd Fadd32
#define Fchg Fchg32
#define Fvals Fvals32
#define Fvall Fvall32
#define Fget Bget
#define Fdel Bdel
#define Fdelall Bdelall
#define Fpres Bpres
#define Flen Blen
#define Ffind Bfind
#define CFadd CBadd
#define CFchg CBchg
#define CFget CBget
#define Fadds Badds
#define Fchgs Bchgs
#define Fgets Bgets
#define Ffinds Bfinds
#define Fgetsa Bgetsa
#define Fgetalloc Bgetalloc
#define CFgetalloc CBgetalloc
#define CFfind CBfind
#define Ffindlast Bfindlast
#define Fgetlast Bgetlast
#define Ffindocc Bfindocc
#define CFfindocc CBfindocc
#define Ftypcvt Btypcvt
#define Foccur Boccur
#define Fnum Bnum
#define Fnext Bnext
#define Finit Binit
#define Fcpy Bcpy
#define Fupdate Bupdate
#define Fconcat Bconcat
#define Fproj Bproj
#define Fprojcpy Bprojcpy
#define Fjoin Bjoin
#define Fojoin Bojoin
#define Fdelete Bdelete
#define Fmove Bmove
#define Fcmp Bcmp
#define Falloc Balloc
#define Frealloc Brealloc
#define Ffree Bfree
#define Fneeded Bneeded
#define Findex Bindex
#define Frstrindex Brstrindex
#define Funindex Bunindex
#define Fidxused Bidxused
#define Fielded Bisubf
#define Fsizeof Bsizeof
#define Fused Bused
#define Funused Bunused
#define Fprint Bprint
#define Ffprint Bfprint
#define Fwrite Bwrite
#define Fread Bread
#define Fextread Bextread
#define Fboolco Bboolco
#define Fboolev Bboolev
#define Ffloatev Bfloatev
#define Fboolpr Bboolpr
#define Fldid Bfldid
#define Fname Bfname
#define Fldtype Bfldtype
#define Fldno Bfldno
#define Ftype Btype
#define Fmkfldid Bmkfldid

#define Fvftos Bvftos
#define Fvstof Bvstof
#define Fvnull Bvnull
#define Fvselinit Bvselinit
#define Fvsinit Bvsinit
#define Fvopt Bvopt
#define Fvrefresh Bvrefresh

#endif
