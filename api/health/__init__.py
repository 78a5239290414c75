"""The checks behind `/readyz`: can this installation decide events?"""
