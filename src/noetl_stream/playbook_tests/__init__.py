"""Tests of playbooks: ``*.test.yaml`` beside a playbook, run on the engine in memory and in simulated time."""
