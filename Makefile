# Every target is a command of `python -m course_utils`; this file only names them and passes the variables on.
PYTHON ?= python3
COURSE = $(PYTHON) -m course_utils

# $(call option,PORT,--port) is --port='8889' when PORT is 8889, and nothing when PORT is empty.
option = $(if $($(1)),$(2)='$(subst ','\'',$($(1)))')
torch = $(call option,TORCH,--torch)
submissions = $(call option,SUBMISSIONS,--submissions)

.PHONY: help setup lab check doctor test notebooks grade instructor slides handout release train bench

help:
	@$(COURSE) help
setup:
	@$(COURSE) setup $(torch)
lab:
	@$(COURSE) lab $(torch) $(call option,PORT,--port) $(ARGS)
check:
	@$(COURSE) check $(torch) $(call option,LESSON,--lesson) $(ARGS)
doctor:
	@$(COURSE) doctor $(torch)
test:
	@$(COURSE) test $(torch) $(ARGS)
notebooks:
	@$(COURSE) notebooks $(torch) $(ARGS)
grade:
	@$(COURSE) grade $(torch) $(submissions) $(call option,ROSTER,--roster) $(call option,REPORT,--report) $(ARGS)
instructor:
	@$(COURSE) instructor $(torch) $(call option,LESSON,--lesson) $(ARGS)
slides:
	@$(COURSE) slides $(torch) $(call option,LESSON,--lesson) $(ARGS)
handout:
	@$(COURSE) handout $(torch) $(call option,LESSON,--lesson) $(call option,NETWORK,--network) $(call option,IMAGE,--image) $(ARGS)
release:
	@$(COURSE) release $(torch) $(ARGS)
train:
	@$(COURSE) train $(torch) $(ARGS)
bench:
	@$(COURSE) bench $(torch) $(ARGS)
